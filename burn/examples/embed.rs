use portkit_burn::{Batch, BertModel, Pretrained, Result, device};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).expect("usage: embed FOLDER");
    let model = BertModel::from_pretrained(folder, &device("cpu")?)?;
    let batch = Batch::padded(&[vec![101, 7592, 2088, 102], vec![101, 102]], 0)?;
    let output = model.forward(&batch)?;
    println!("{}", output.last_hidden_state());
    Ok(())
}
