"""Verdicts as JUnit XML, which CI systems show: one test case for each proof and for each output compared.

The form is what both the schema of Ant and that of Jenkins' xUnit plugin allow.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from portkit.errors import PortkitError, Problem, UnreadableError
from portkit.proofs import PROOFS
from portkit.proofs.agreement import describe
from portkit.render_proofs import render_facts, render_forward, render_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from portkit.proofs.agreement import Agreement
    from portkit.proofs.pair import Verification

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in no XML 1.0 file, escaped or not
_SUITE = "portkit verify"


@dataclass(frozen=True)
class Case:
    """One test case: how it ended ("pass", "fail", "error", "skipped"), why in one line, and the whole report."""

    group: str
    name: str
    result: str
    message: str = ""
    report: str = ""


@contextmanager
def written(path: Path) -> Iterator[Callable[[Verification | None], None]]:
    """A function that writes verdicts to a file; an error on the way to them is written too, and goes on.

    A CI job that sees no file would see no failure. Raises UnreadableError when the file cannot be written.
    """
    try:
        yield lambda verdict: _write(path, cases_of(verdict))
    except PortkitError as error:
        _write(path, [Case("portkit.verify", "open", "error", error.title, str(error))])
        raise


def cases_of(verdict: Verification | None) -> list[Case]:
    """A case for each proof, whether it was made or not, then one for each output of the forward proof."""
    if verdict is None:
        return [Case("portkit.verify", name, "skipped", "not asked for") for name in PROOFS]
    reports = {
        "tensors": render_tensors(verdict.tensors, rest=True) if verdict.tensors else [],
        "facts": render_facts(verdict.facts) if verdict.facts else [],
        "forward": render_forward(verdict.forward, by_bits=verdict.tensors is not None) if verdict.forward else [],
    }
    said = {"tensors": verdict.tensors, "facts": verdict.facts, "forward": verdict.forward}
    errors = {name: error.title for name, error in verdict.errors.items()}
    proofs = [
        Case(
            "portkit.verify",
            name,
            result,
            errors.get(name) or ("not asked for" if result == "skipped" else str(said[name])),
            str(verdict.errors[name]) if name in verdict.errors else "\n".join(reports[name]),
        )
        for name, result in verdict.results.items()
    ]
    return proofs + [_output(item) for item in (verdict.forward.agreements if verdict.forward else ())]


def _output(item: Agreement) -> Case:
    numbers = (
        f"difference {item.difference:.3g}, noise {item.noise:.3g}, limit {item.limit:.3g}, ratio {item.ratio:.3g}"
    )
    where = describe(item.output)
    return Case("portkit.proofs.forward", item.output, "pass" if item.agrees else "fail", f"{where}: {numbers}")


def _write(path: Path, cases: list[Case]) -> None:
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", _attributes(cases))
    ET.SubElement(suite, "properties")
    for case in cases:
        _append(suite, case)
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    ET.indent(suites)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as e:
        problem = Problem(str(path), "cannot be written", found=e.strerror or str(e))
        raise UnreadableError("the JUnit file was not written", [problem]) from e


def _attributes(cases: list[Case]) -> dict[str, str]:
    results = [case.result for case in cases]
    counts = {"failures": "fail", "errors": "error", "skipped": "skipped"}
    return {
        "name": _SUITE,
        "package": "portkit",
        "id": "0",
        "hostname": "localhost",  # the schema wants one, and this is its word for an unknown one
        "timestamp": datetime.now().astimezone().strftime("%Y-%m-%dT%H:%M:%S"),
        "time": "0",
        "tests": str(len(cases)),
        **{name: str(results.count(result)) for name, result in counts.items()},
    }


def _append(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", {"classname": case.group, "name": _clean(case.name), "time": "0"})
    tag = {"fail": "failure", "error": "error", "skipped": "skipped"}.get(case.result)
    if tag is None:
        return
    kind = {} if tag == "skipped" else {"type": case.name}
    child = ET.SubElement(element, tag, {"message": _clean(case.message), **kind})
    child.text = _clean(case.report) or None


def _clean(text: str) -> str:
    """Names come out of strangers' files, and may hold what XML cannot."""
    return _NO_XML.sub("\ufffd", text)
