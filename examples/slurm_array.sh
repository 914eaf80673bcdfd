#!/bin/bash
# Run a suite as a SLURM array, a share of the runs in each task, into a file of its own:
#   sbatch --array=1-10 slurm_array.sh SUITE FOLDER [OPTIONS of qcqpbench run]
#   qcqpbench merge FOLDER/*.db -o results.db        # when all tasks have ended
# The first command again, with as many tasks, resumes tasks that were ended early. qcqpbench must be on PATH, and the
# folder on a disk that all nodes share. Add here what your cluster needs: --partition, --account, --constraint.
#SBATCH --job-name=qcqpbench
#SBATCH --array=1-10
#SBATCH --cpus-per-task=1
#SBATCH --mem=5G
#SBATCH --time=12:00:00
#SBATCH --output=%x-%A_%a.log
# SIGINT before the time limit, which ends the runs in progress without rows.
#SBATCH --signal=B:INT@60
set -euo pipefail
suite=$1 folder=$2
shift 2
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
mkdir -p "$folder"
exec qcqpbench run "$suite" "$@" --jobs "${SLURM_CPUS_PER_TASK:-1}" \
  --share "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --output "$folder/share-$SLURM_ARRAY_TASK_ID.db"
