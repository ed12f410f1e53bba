#!/bin/bash
# usage: record.sh GRADWIRE FOLDER: what checkpoints.txt lists, and the sweep, written to FOLDER by that program.
# Root is wanted for the two nodes of two-levels: names of hosts that differ.
set -euo pipefail
program=$(realpath "$1") here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2/checkpoints" "$2/bin"
cd "$2"
while read -r name _ flags; do
  [[ $name == "#"* ]] && continue
  read -ra words <<<"--batch 48 --seed 3 --steps 6 --quiet --checkpoint checkpoints/$name $flags"
  if [ "$name" = two-levels ]; then
    "$program" run -n 4 --plain -- unshare --uts sh -c 'hostname "node$((GRADWIRE_RANK / 2))"; exec "$@"' sh \
      "$program" train --transport tcp "${words[@]:0:9}" "${words[@]:11}" </dev/null # without --inproc 4
  else
    "$program" train "${words[@]}" </dev/null
  fi
done <"$here/checkpoints.txt"
ln -sf "$program" bin/gradwire
PATH=$PWD/bin:$PATH gradwire sweep "$here/sweep/study.toml" --out sweep --jobs 1
