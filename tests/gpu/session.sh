#!/bin/bash
# session.sh PHASE...: runs parts of what needs a GPU, from a bundle (`./dev gpu-bundle`), within 14 minutes in all:
#
#   1  is it right, and how fast are the codecs (290 s)
#   2  profiles of the kernels; streams and overlap (265 s)
#   3  training steps with and without compression (265 s)
#
# PHASE_SECONDS is another limit of each phase. A step has a time limit of its own, and leaves a twentieth of the phase
# to each of those behind it. It writes JSON to $OUT (default: gpu-results). A step that fails and is a gate ends the phase. The last lines say what each step has come to; $OUT/summary.json has the same.
set -uo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
here=$root/tests/gpu
OUT=${OUT:-$PWD/gpu-results}
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || { echo "session.sh: OUT=$OUT is no folder to write to" >&2; exit 2; }
export OUT
export DTRUN_CODEC_CUDA_LIBRARY=${DTRUN_CODEC_CUDA_LIBRARY:-$root/lib/dtrun/backends/libdtrun_codec_cuda.so}
export LIBDTRUN_PATH=${LIBDTRUN_PATH:-$root/lib/libdtrun.so.0}
export LIBDTRUN_COLLECTIVES_PATH=${LIBDTRUN_COLLECTIVES_PATH:-$root/lib/libdtrun_collectives.so.0}
export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # libdtrun_collectives needs libdtrun
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
python=${PYTHON:-python3}
# Where pip puts libnccl and libcudart, for programs that are not Python.
export VIRTUAL_ENV=${VIRTUAL_ENV:-$($python -c 'import sys; print(sys.prefix)' 2>/dev/null)}
gates_open=1
counting=0   # 1: steps of the phase are counted, not run
steps_left=0 # of the phase, behind this one
lines=()
objects=()

note() { # note NAME OUTCOME SECONDS: the outcome of a step
    if [ $counting = 1 ]; then return; fi
    lines+=("$(printf '%-22s %-8s %5s s' "$1" "$2" "$3")")
    objects+=("{\"step\": \"$1\", \"outcome\": \"$2\", \"seconds\": $3}")
    (IFS=,; echo "[${objects[*]}]") >"$OUT/summary.json" # at once: the machine may be gone before the end
}

step() { # step [--gate] NAME SECONDS COMMAND...: 0 is ok, 77 skipped
    local gate=0
    if [ "$1" = --gate ]; then gate=1; shift; fi
    local name=$1 limit=$2 code=0 began=$SECONDS outcome=ok room
    shift 2
    if [ $counting = 1 ]; then
        steps_left=$((steps_left + 1))
        return
    fi
    steps_left=$((steps_left - 1))
    room=$((phase_end - SECONDS - steps_left * share))
    [ $room -ge $share ] || room=$share
    [ $limit -le $room ] || limit=$room
    if [ $gates_open = 0 ]; then
        note "$name" gated 0
        return
    fi
    echo "== $name: $*"
    # `timeout` starts programs, and functions by way of a shell.
    local words=("$@")
    [ "$(type -t "$1")" != function ] || words=(bash -c '"$@"' _ "$@")
    timeout --kill-after 5 "$limit" "${words[@]}" >"$OUT/$name.log" 2>&1 || code=$?
    tail -n 25 "$OUT/$name.log"
    case $code in
        0) ;;
        77) outcome=skipped ;;
        124 | 137) outcome=timeout ;;
        *) outcome=FAILED ;;
    esac
    [ $gate = 0 ] || [ $outcome = ok ] || gates_open=0
    note "$name" $outcome $((SECONDS - began))
}

optional() { # optional PROGRAM ARGUMENTS OF step...: skipped where there is no such program
    if command -v "$1" >/dev/null; then step "${@:2}"; else note "$2" skipped 0; fi
}

about() { # the machine, as figures mean nothing without it
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv 2>/dev/null ||
        { echo "no nvidia-smi: no GPU here"; return 77; }
    date -u +%Y-%m-%dT%H:%M:%SZ
    head -3 "$root/MANIFEST"
    $python -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "NCCL",
        torch.cuda.nccl.version() if torch.cuda.is_available() else "none")' ||
        echo "no torch: phases 2 and 3 skip what needs it"
    for file in "$root"/bin/*; do ldd "$file" 2>/dev/null | grep 'not found' && echo "  ($file)"; done
    return 0
}

survivor() { # rank 1 kills itself: how long does rank 0 take to end?
    local folder began code=0
    folder=$(mktemp -d)
    NCCL_HOSTID=survivor-1 "$root/bin/test_nccl_gpu" --rank 1 --size 2 --folder "$folder" --die-after 20 &
    NCCL_HOSTID=survivor-0 "$root/bin/test_nccl_gpu" --rank 0 --size 2 --folder "$folder" --die-after 20 || code=$?
    began=$(stat -c %Y "$folder")
    wait
    echo "{\"exit\": $code, \"seconds_since_last_file\": $(($(date +%s) - began))}" | tee "$OUT/survivor.json"
    rm -rf "$folder"
    [ $code = 3 ] # the peer is gone: any other end is another failure
}

ranks() { # ranks N COMMAND...: under dtrun, on this host
    local number=$1
    shift
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$root/extra "$root/bin/dtrun" -np "$number" "$@"
}

lab() { # lab JSON: the lab's trainer over NCCL, with a rank on each GPU; its words for dtrun are its own
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$root/extra "$root/bin/dtrun" bench --no-sweep --train --python $python --backends nccl \
        --algorithms parallel,int8 --epochs 5 --json "$1"
}

phase_1() {
    step --gate about 60 about
    step --gate codec-check 150 "$root/bin/test_codec_cuda" --check-only --json "$OUT/codec-check.json"
    step codec-rates 120 "$root/bin/test_codec_cuda" --measure-only --sizes 1024 --misaligned \
        --json "$OUT/codec.json"
    step codec-small 60 "$root/bin/test_codec_cuda" --measure-only --sizes 1,4,25,64 --misaligned \
        --json "$OUT/codec-small.json"
    optional compute-sanitizer memcheck 120 compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$root/bin/test_codec_cuda" --check-only --quick
    optional compute-sanitizer racecheck 60 compute-sanitizer --tool racecheck --error-exitcode 9 \
        "$root/bin/test_codec_cuda" --check-only --quick
    rm -f "$OUT/nccl.jsonl"
    step nccl 150 "$root/bin/test_nccl_gpu" --largest 268435456 --require-two --json "$OUT/nccl.jsonl"
    step survivor 60 survivor
}

phase_2() {
    step --gate about 60 about
    step streams 90 ranks 1 $python "$here/streams.py" --json "$OUT/streams.json"
    step streams-two 120 ranks 2 $python "$here/streams.py" --json "$OUT/streams-two.json"
    optional ncu profile 240 ncu --clock-control none --set full --force-overwrite -c 12 -o "$OUT/kernels" \
        -k 'regex:encode_kernel|decode_kernel|combine_kernel|gather_kernel' \
        "$root/bin/test_codec_cuda" --measure-only --sizes 1024
}

phase_3() {
    step --gate about 60 about
    local model steps=60
    # Ranks that share a GPU only show that it works.
    [ "$(nvidia-smi -L | wc -l)" -gt 1 ] || steps=10
    for model in mlp transformer; do
        step "ddp-$model" 150 $python -m torch.distributed.run --nproc-per-node 2 "$here/ddp_hook.py" \
            --model "$model" --steps $steps --json "$OUT/ddp-$model.json"
        step "ddp-$model-dtrun" 150 ranks 2 $python "$here/ddp_hook.py" --model "$model" --steps $steps \
            --json "$OUT/ddp-$model-dtrun.json"
    done
    step lab 120 lab "$OUT/lab.json"
}

export -f about survivor ranks lab
export root python

[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
for phase in "$@"; do
    gates_open=1
    case $phase in
        1) phase_seconds=290 ;;
        2 | 3) phase_seconds=265 ;;
        *) echo "session.sh: phases are 1, 2 and 3, not $phase" >&2; exit 2 ;;
    esac
    phase_seconds=${PHASE_SECONDS:-$phase_seconds}
    share=$(((phase_seconds + 19) / 20))
    counting=1 steps_left=0
    "phase_$phase"
    counting=0 phase_end=$((SECONDS + phase_seconds))
    "phase_$phase"
done

echo
printf '%s\n' "${lines[@]}"
! grep -q -E '"(FAILED|timeout|gated)"' "$OUT/summary.json"
