#!/usr/bin/env bash
# One job on all nodes of a reservation: sbatch hosts.sh histogram 'run-*.bin' -o counts.json
#SBATCH --job-name=baru-hosts
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=8:00:00
set -euo pipefail
umask 077 # the key is nobody else's
python=${BARU_PYTHON:-$HOME/baru/.venv/bin/python}
worker=${BARU_WORKER:-cuda worker} # on CPUs: worker
folder=$(mktemp -d "$PWD/.baru-XXXXXX") # where all nodes see it
workers='' scheduler=''
ended() { # workers first: without a scheduler they complain
    for child in $workers $scheduler; do
        kill "$child" 2> /dev/null && wait "$child" || true
    done
    rm -r "$folder"
}
trap ended EXIT

# Whoever reaches a scheduler can run code as you: a certificate for this job alone keeps others out.
openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=baru -keyout "$folder/key.pem" -out "$folder/cert.pem" 2> /dev/null
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE="$folder/cert.pem"
for role in SCHEDULER WORKER CLIENT; do
    export "DASK_DISTRIBUTED__COMM__TLS__${role}__CERT=$folder/cert.pem" "DASK_DISTRIBUTED__COMM__TLS__${role}__KEY=$folder/key.pem"
done

file=$folder/cluster.json
"$python" -m dask scheduler --protocol tls --port 0 --no-dashboard --scheduler-file "$file" &
scheduler=$!
timeout 60 sh -c "until [ -s '$file' ]; do sleep 1; done"
# shellcheck disable=SC2086 # the worker is several words
srun "$python" -m dask $worker --protocol tls --no-dashboard --scheduler-file "$file" &
workers=$!
timeout 120 "$python" -c 'import sys; from distributed import Client; Client(scheduler_file=sys.argv[1]).wait_for_workers(int(sys.argv[2]))' \
    "$file" "$SLURM_NNODES"
"$python" -m pipeline "$@" --scheduler-file "$file"
