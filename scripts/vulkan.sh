#!/bin/sh
# Sees to it that Vulkan has a driver: where there is none, Mesa's llvmpipe makes a GPU of the CPU.
set -eu
[ "$(uname)" = Linux ] || exit 0 # Metal and DirectX come with their systems
for driver in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
  [ -e "$driver" ] && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends mesa-vulkan-drivers >/dev/null
else
  echo "No Vulkan driver was found. On Debian and Ubuntu, get one with: sudo apt-get install mesa-vulkan-drivers"
fi
