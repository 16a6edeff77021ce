#!/usr/bin/env bash
# A night's batch: the histogram and moments of every recording in a folder, and the product of every pair of stacks of
# matrices, NAME-a.npy and NAME-b.npy. What has a result that is newer than its input is left out, so that the same line
# does the rest the next night; what was interrupted is resumed.
#
#   night.sh RECORDINGS MATRICES RESULTS [options of all jobs, like --gpus all]
#
# With SLURM, on all GPUs of a node, stopped five minutes before the end of the reservation and queued again:
#   sbatch night.sh ~/recordings ~/matrices ~/results --gpus all
# With cron, on weekdays at 22:30, never twice at a time, on GPUs that nobody uses, until 06:00:
#   30 22 * * 1-5  flock -n ~/.night timeout -s USR1 7.5h night.sh ~/recordings ~/matrices ~/results --gpus idle
#
# Exit status: 0 all done and verified; 1 some failed, as listed; 75 stopped, and to be continued.
#SBATCH --job-name=night
#SBATCH --gres=gpu:8
#SBATCH --time=08:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue

shopt -s nullglob
recordings=$1 matrices=$2 results=$3
shift 3 || { echo "expected RECORDINGS MATRICES RESULTS" >&2; exit 2; }
mkdir -p "$results" || exit 1
read -ra baru <<< "${BARU:-python -m pipeline}"
failed=() stopped=

# A shell handles a signal only between commands, so they run beside it.
trap 'stopped=yes; kill -USR1 "$child" 2> /dev/null' USR1 TERM INT

# job NAME INPUT OUTPUT WORDS...: run a job unless its output is newer than its input.
job() {
    local name=$1 input=$2 output=$3 status
    shift 3
    [[ $output -nt $input ]] && return
    "${baru[@]}" "$@" --quiet --resume > "$results/$name.log" 2>&1 &
    child=$!
    wait "$child"
    status=$?
    while ((status > 128)) && kill -0 "$child" 2> /dev/null; do wait "$child"; status=$?; done
    if [[ $stopped || $status == 75 ]]; then
        echo "$name: stopped; the same line continues"
        [[ ${SLURM_JOB_ID-} ]] && scontrol requeue "$SLURM_JOB_ID"
        exit 75
    fi
    echo "$name: $( ((status)) && tail -n 1 "$results/$name.log" || echo verified)"
    ((status == 0)) || failed+=("$name")
}

for file in "$recordings"/*.{npy,bin}; do
    name=$(basename "$file")
    job "$name" "$file" "$results/$name.npz" histogram "$file" -o "$results/$name.npz" "$@" \
        --also "reduce --op count,sum,mean,std,min,max -o $(printf %q "$results/$name.json")"
done
for first in "$matrices"/*-a.npy; do
    name=$(basename "${first%-a.npy}")
    second=${first%-a.npy}-b.npy
    newer=$first
    [[ $second -nt $first ]] && newer=$second
    job "$name" "$newer" "$results/$name.npy" matmul "$first" "$second" -o "$results/$name.npy" "$@"
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; exit 1; }
