#!/bin/bash
# A sweep as a job array of Slurm: each task is a shard. The plan, its scenario and the rows are on a file system
# that all nodes share. Submit it, and put the rows together when the array has ended:
#
#     job=$(sbatch --parsable slurm-sweep.sh plan.yaml rows)
#     sbatch --dependency=afterok:$job --wrap "arraysim sim --sweep plan.yaml --rows rows --merge all.parquet"
#
# A task that was lost or cancelled is submitted again with its index (--array=7), or the whole array is: what has
# rows is not run again.
#SBATCH --job-name=arraysim-sweep
#SBATCH --array=0-15
#SBATCH --cpus-per-task=2
#SBATCH --mem=1G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail
plan=${1:?give the plan} rows=${2:?give the folder of the rows}
shards=16 # as many as the array has tasks; it stays the same if a few of them are submitted again

exec arraysim sim --sweep "$plan" --rows "$rows" --jobs "${SLURM_CPUS_PER_TASK:-1}" --quiet \
	--shard "$SLURM_ARRAY_TASK_ID/$shards"
