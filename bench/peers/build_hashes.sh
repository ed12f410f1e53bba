#!/bin/bash
# Two builds' programs train alike, or not: 94 short runs of every method, optimizer, mode and stage through both, and which of
# them end with other parameters (params_hash). Takes less than a minute.
#
#   bench/peers/build_hashes.sh BEFORE/apps/gradwire NOW/apps/gradwire [FOLDER FOR THE TABLE]
#
# A line below: NAME | FLAGS. All are deterministic: one worker where workers do not wait for each other. Runs on two levels give
# each node a name of its own, which takes root (unshare --uts).
set -u
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
before=$1 after=$2 out=${3:-$(mktemp -d)}
mkdir -p "$out"
base="--batch 48 --steps 6 --hidden 24 --seed 7 --lr 0.05" # what a line does not say
configs() {
cat <<'C'
plain mlp, 4 ranks|--inproc 4
plain mlp, ring|--inproc 3 --algorithm ring
plain mlp, canonical|--inproc 4 --algorithm canonical
plain mlp, accumulate 4|--accumulate 4
worker momentum|--inproc 3 --momentum-at worker --momentum 0.9
nesterov, decay, clip|--inproc 2 --optimizer nesterov --momentum 0.9 --weight-decay 0.001 --clip 0.5
adamw cosine|--inproc 2 --optimizer adamw --lr 0.002 --lr-schedule warmup:2,cosine:0.1
lamb, clip-worker|--inproc 2 --optimizer lamb --lr 0.002 --clip-worker 0.5
cnn|--inproc 2 --model cnn --batch 32 --steps 3 --NOHIDDEN
cnn, one sample a rank|--inproc 4 --model cnn --batch 4 --steps 3 --NOHIDDEN
resnet8|--inproc 2 --model resnet8 --width 4 --batch 16 --steps 3 --NOHIDDEN
resnet8 qsgd|--inproc 3 --model resnet8 --width 4 --batch 24 --steps 3 --NOHIDDEN --compressor qsgd:bits=4
gpt grammar|--inproc 2 --model gpt --data grammar --layers 1 --width 16 --heads 2 --context 8 --batch 8 --steps 4 --NOHIDDEN
gpt tied powersgd|--inproc 2 --model gpt --data grammar --layers 1 --width 16 --heads 2 --context 8 --batch 8 --steps 4 --tied --NOHIDDEN --compressor powersgd:rank=2,ef=ef14,min_elems=0
logistic sparse block_sparse|--inproc 2 --model logistic --data sparse --batch 32 --NOHIDDEN --compressor block_sparse:min_elems=0
bf16|--inproc 2 --precision bf16
bf16 no-main-grads|--inproc 2 --precision bf16 --no-main-grads --optimizer adamw --lr 0.002
fp16|--inproc 2 --precision fp16
zero1|--inproc 3 --zero 1 --optimizer adamw --lr 0.002
zero2 clipped|--inproc 2 --zero 2 --optimizer adamw --lr 0.002 --clip 0.5
zero2 absmax ef, cast parameters|--inproc 3 --zero 2 --optimizer adamw --lr 0.002 --compressor absmax:bits=8,ef=ef14,min_elems=0 --parameter-compressor cast:bf16
zero1 qsgd|--inproc 3 --zero 1 --compressor qsgd:bits=4,min_elems=0
zero3 bf16|--inproc 2 --zero 3 --precision bf16 --optimizer adamw --lr 0.002
zero3 offload, recompute|--inproc 2 --zero 3 --offload parameters --recompute sqrt --optimizer adamw --lr 0.002
lossless|--inproc 2 --compressor lossless:min_elems=0
cast fp16|--inproc 3 --compressor cast:fp16
cast bf16 ef|--inproc 3 --compressor cast:bf16,ef=ef14,min_elems=0
fp8 ef|--inproc 3 --compressor fp8:ef=ef14,min_elems=0
mx e2m1 ef|--inproc 3 --compressor mx:e2m1,ef=ef14,min_elems=0
natural|--inproc 3 --compressor natural:min_elems=0
topk|--inproc 3 --compressor topk:ratio=0.05,min_elems=0
topk ef14 dense_1d=false|--inproc 3 --compressor topk:ratio=0.05,ef=ef14,min_elems=0,dense_1d=false
topk ef21|--inproc 3 --compressor topk:ratio=0.05,ef=ef21,min_elems=0
topk ef14 bf16 residuals|--inproc 3 --compressor topk:ratio=0.05,ef=ef14,ef_storage=bf16,min_elems=0
topk second stage qsgd|--inproc 3 --compressor topk:ratio=0.1,ef=ef14,min_elems=0|qsgd:bits=8
threshold ef|--inproc 2 --compressor threshold:tau=0.01,ef=ef14,min_elems=0
dgc, momentum 0|--inproc 3 --momentum 0 --compressor dgc:ratio=0.05,min_elems=0
dgc, momentum as it comes|--inproc 3 --compressor dgc:ratio=0.05,min_elems=0
dgc, momentum given|--inproc 3 --momentum 0.9 --compressor dgc:ratio=0.05,min_elems=0
randomk ef|--inproc 3 --compressor randomk:ratio=0.1,ef=ef14,min_elems=0
randomk unbiased|--inproc 3 --compressor randomk:ratio=0.1,unbiased=true,min_elems=0
cltk ef|--inproc 3 --compressor cltk:ratio=0.05,ef=ef14,min_elems=0
minmax|--inproc 3 --compressor minmax:min_elems=0
minmax ef|--inproc 3 --compressor minmax:ef=ef14,min_elems=0
absmax|--inproc 3 --compressor absmax:min_elems=0
absmax 4 ef|--inproc 3 --compressor absmax:bits=4,ef=ef14,min_elems=0
qsgd 8|--inproc 3 --compressor qsgd:bits=8,min_elems=0
qsgd 4 gather|--inproc 3 --compressor qsgd:bits=4,combine=gather,min_elems=0
qsgd 2 ef|--inproc 3 --compressor qsgd:bits=2,ef=ef14,min_elems=0
qsgd levels=3 l2|--inproc 3 --compressor qsgd:levels=3,norm=l2,combine=gather,min_elems=0
qsgd levels=1 l2 gather|--inproc 3 --compressor qsgd:levels=1,norm=l2,combine=gather,min_elems=0
terngrad|--inproc 3 --compressor terngrad:min_elems=0
global_qsgd|--inproc 3 --compressor global_qsgd:min_elems=0
thc|--inproc 3 --compressor thc:min_elems=0
thc ef|--inproc 3 --compressor thc:ef=ef14,min_elems=0
signsgd ef|--inproc 3 --compressor signsgd:ef=ef14,min_elems=0
signsgd majority|--inproc 3 --lr 0.001 --compressor signsgd:vote=majority,min_elems=0
onebit ef|--inproc 3 --compressor onebit:ef=ef14,min_elems=0
signum|--inproc 3 --momentum 0 --lr 0.001 --compressor signum:min_elems=0
powersgd ef|--inproc 3 --compressor powersgd:rank=2,ef=ef14,min_elems=0
acpsgd ef|--inproc 3 --compressor acpsgd:rank=2,ef=ef14,min_elems=0
atomo|--inproc 3 --compressor atomo:min_elems=0
loco|--inproc 3 --compressor absmax:bits=4,ef=loco,min_elems=0
scheduled absmax ef|--inproc 3 --compressor absmax:bits=4,ef=ef14,warmup_steps=3,min_elems=0
scheduled minmax|--inproc 3 --compressor minmax:bits=4,warmup_steps=3,min_elems=0
scheduled topk ef|--inproc 3 --compressor topk:ratio=0.05,ef=ef14,warmup_steps=3,min_elems=0
mlp, one sample a rank|--inproc 3 --batch 3
mlp, three samples a rank|--inproc 2 --batch 6
rules|--inproc 2 --compressor *.bias=none;fc1.*=topk:ratio=0.1,ef=ef14,min_elems=0;*=qsgd:bits=8,min_elems=0
onebit_adam|--inproc 2 --optimizer onebit_adam:3 --lr 0.001
zero_one_adam|--inproc 2 --optimizer zero_one_adam:freeze=2,local_doubles=1,local_most=4 --lr 0.001
onebit_lamb|--inproc 2 --optimizer onebit_lamb:3 --lr 0.001
demo|--inproc 2 --optimizer demo --lr 0.001
diloco|--inproc 2 --optimizer diloco:inner_steps=2 --lr 0.001
diloco absmax|--inproc 3 --optimizer diloco:inner_steps=4 --lr 0.001 --optimizer-compressor absmax:bits=4
ps-sync|--inproc 3 --mode ps-sync
ps-sync, 2 servers, topk both ways|--inproc 4 --mode ps-sync --servers 2 --compressor topk:ratio=0.05,ef=ef14,min_elems=0 --pull-compressor topk:ratio=0.2,min_elems=0
ps-async, one worker|--inproc 2 --mode ps-async
hogwild, one thread|--inproc 1 --mode hogwild
easgd|--inproc 3 --mode easgd
easgd cosine rho|--inproc 3 --mode easgd --rho 1 --lr-schedule cosine:0.1
sync-easgd|--inproc 3 --mode sync-easgd
eamsgd|--inproc 3 --mode eamsgd --period 2
eamsgd, warm-up, moving rate|--inproc 3 --mode eamsgd --moving-rate 0.5 --lr-schedule warmup:3
eamsgd, asynchronous, one worker|--inproc 2 --mode eamsgd --asynchronous --period 2
eamsgd qsgd|--inproc 3 --mode eamsgd --compressor qsgd:bits=8,min_elems=0
fedavg|--inproc 3 --mode fedavg --local-steps 2
zero2, 2 micro-batches, processes|--run 2 --transport tcp --zero 2 --accumulate 2 --optimizer adamw --lr 0.002
zero3, 2 micro-batches, bf16, processes|--run 2 --transport tcp --zero 3 --accumulate 2 --precision bf16 --optimizer adamw --lr 0.002
two levels, exact inside, qsgd between|--run 4 --transport tcp --compressor qsgd:bits=4,inner=none,min_elems=0
two levels, topk ef between|--run 4 --transport tcp --compressor topk:ratio=0.05,ef=ef14,inner=none,min_elems=0
two levels, natural between|--run 4 --transport tcp --compressor natural:inner=none,min_elems=0
two levels, absmax ef between|--run 4 --transport tcp --compressor absmax:bits=4,ef=ef14,inner=none,min_elems=0
fedavg, two thirds, topk ef|--inproc 3 --mode fedavg --local-steps 2 --participation 0.67 --compressor topk:ratio=0.05,ef=ef14,min_elems=0
C
}
run() { # PROGRAM TAG NAME FLAGS: its hash, or its last words
  local file=$out/$2.jsonl flags=$4 words
  local -a argv
  words=
  while read -r flag value; do
    [[ " $flags" == *" $flag "* ]] || [[ $flag == --hidden && $flags == *--NOHIDDEN* ]] || words+="$flag $value "
  done < <(sed 's/ --/\n--/g' <<<"$base")
  read -ra argv <<<"$words ${flags/--NOHIDDEN/}"
  local -a how=("$1" train)
  if [[ $flags == --run* ]]; then # processes, two of them on each of several nodes, as their names say
    read -ra argv <<<"$words $(cut -d' ' -f3- <<<"$flags")"
    how=("$1" run -n "$(cut -d' ' -f2 <<<"$flags")" --plain -- unshare --uts sh -c
      'hostname node$((GRADWIRE_RANK / 2)); exec "$@"' sh "$1" train)
  fi
  rm -f "$file"
  if timeout 60 "${how[@]}" "${argv[@]}" --quiet --metrics "$file" >"$out/$2.log" 2>&1; then
    tail -n 1 "$file" | sed -n 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/p'
  else
    echo "refused: $(tail -n 1 "$out/$2.log" | cut -c1-140)"
  fi
}
same=0 other=0
: >"$out/table"
while IFS= read -r line; do
  name=${line%%|*} flags=${line#*|}
  a=$(run "$before" before "$name" "$flags")
  b=$(run "$after" after "$name" "$flags")
  if [ "$a" = "$b" ]; then same=$((same + 1)); else other=$((other + 1)); echo "OTHER  $name: $a | $b"; fi
  echo "$name|$a|$b" >>"$out/table"
done < <(configs)
echo "$same equal, $other not; $out/table"
