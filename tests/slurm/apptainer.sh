#!/bin/bash
# Ranks inside an image: parx_slurm's --container on a private Slurm:   apptainer.sh BIN_DIR
# Exit code 77: there is no Slurm to try it with.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh" "$1"
echo "NOT TRIED: the real Apptainer, which Debian 12 does not have. A stand-in takes its options and runs the rest."

# An "image" is a file with the PATH inside it. As the real one, the stand-in ends where a bound path is
# missing, and passes the environment on.
mkdir stub project && cat >stub/apptainer <<'END'
#!/bin/bash
fatal() { echo "FATAL:   $*" >&2; exit 255; }
[ "$1" = exec ] || fatal "unknown command $1"
shift
while [[ $1 = --* ]]; do
  case $1 in
    --bind) for path in ${2//,/ }; do [ -e "$path" ] || fatal "container creation failed: mount source $path doesn't exist"; done ;;
    --pwd) cd "$2" || fatal "could not change to $2" ;;
    *) fatal "unknown flag: $1" ;;
  esac
  shift 2
done
image=$1; shift
[ -r "$image" ] || fatal "could not open image $image: no such file or directory"
PATH=$(cat "$image") IN_IMAGE=$image exec "$@"
END
chmod +x stub/apptainer
plain=$PATH
export PATH=$work/stub:$PATH
echo "$bin:/usr/bin:/bin" >parx.sif
echo "/usr/bin:/bin" >bare.sif
cp "$bin/hello_all_reduce" project/hello
printf '#!/bin/sh\necho "[RANK $RANK] WORLD_SIZE=$WORLD_SIZE in $IN_IMAGE at $PWD"\n' >project/tells && chmod +x project/tells

runs() { shown=no; timeout 60 "$bin/parx_slurm" run -n 2 -t 5m "$@" >"$work/out" 2>&1; }
in_a_job() { shown=no; timeout 60 salloc -Q -I10 -N 3 --ntasks-per-node=1 -c 2 "$bin/parx_slurm" "$@" >"$work/out" 2>&1; }
claim "run --container runs the ranks in the image" runs -N 3 --container parx.sif -- ./project/tells
claim "all of them, in the folder of the command" test "$(grep -cE "\[RANK [0-5]\] WORLD_SIZE=6 in $work/parx.sif at $work\$" "$work/out")" = 6
claim "by the image's parxrun, one container on each node" \
  says "^\\\$ srun .* --ntasks-per-node=1 .* apptainer exec --bind /dev/shm,/tmp --pwd $work $work/parx.sif parxrun -n 2 "
claim "its nodes are checked first" test "$(grep -cE '^node[123]  ok  .*  image [0-9a-f]{8}' "$work/out")" = 3
claim "a name without a slash is the image's program" runs -N 2 --container parx.sif -- hello_all_reduce
claim "which the ranks of two nodes run" ranks_are 4
claim "no file is left" leaves_none
claim "the nodes are idle" within 40 are_idle
claim "an image without parxrun is found" ends_with 4 in_a_job check --container bare.sif -- no_such_program
claim "on all nodes, with what to do" says '^! node\[1-3\]: inside the image there is no parxrun\. Build the image from cmake/recipes/parx.def'
claim "and one without the program" says '^! node\[1-3\]: inside the image there is no no_such_program\. '
claim "an image that is nowhere is found" ends_with 4 in_a_job check --container none.sif
claim "and named" says "^! node\[1-3\]: the image $work/none.sif cannot be read: No such file.*\. Put it where all nodes see it"
PATH=$plain
if ! command -v apptainer >/dev/null && ! command -v singularity >/dev/null; then
  claim "nodes without Apptainer are found" ends_with 4 in_a_job check --container parx.sif
  claim "with what to do" says '^! node\[1-3\]: there is no apptainer in PATH\. Load Apptainer.s module'
fi
PATH=$work/stub:$PATH
if [ "$SLURM_TEST_MODE" = hosts ]; then
  echo "$bin:/usr/bin:/bin:/old" >old.sif
  on node2 mount --bind "$work/old.sif" "$work/parx.sif"
  on node3 mount -t tmpfs none "$work/project"
  claim "another image on one node is found" ends_with 4 in_a_job check --container parx.sif -- ./project/hello
  claim "and named" says "^! node2: its $work/parx.sif is another one than on most nodes"
  claim "so is a program that a node does not see" says "^! node3: the program $work/project/hello cannot be started: No such file"
  on node2 umount "$work/parx.sif"
  claim "run copies what a node does not see into the container" runs -N 3 --container parx.sif -- ./project/hello
  claim "and runs the copies" ranks_are 6
  claim "of which it leaves none" leaves_none
  on node3 umount "$work/project"
fi

"$bin/parx_slurm" batch -N 2 -n 2 -t 10m -J boxed --container parx.sif -- ./project/tells >boxed.sbatch 2>"$work/out"
submitted() { shown=no; sbatch boxed.sbatch >"$work/out" 2>&1 && within 80 are_idle && cat boxed-*.log >>"$work/out"; }
claim "a script of batch --container runs" submitted
claim "with the ranks of both nodes in the image" test "$(grep -cE '\[RANK [0-3]\] WORLD_SIZE=4 in ' "$work/out")" = 4
cat >project/steps <<'END'
#!/bin/sh
[ "$RANK" = 0 ] || exit 0
mkdir -p "$2" && echo "{\"step_ms\": 10, \"samples_per_second\": $((100 * WORLD_SIZE))}" >"$2/train.jsonl"
END
chmod +x project/steps
claim "scale --container measures in the image" in_a_job scale --nodes 1,2 --ranks-threads 2x1 --rounds 1 --container parx.sif -- ./project/steps
claim "and its ranks are those of each node" says '^take 2 nodes x 2 ranks x 1 thread: '
[ $failures = 0 ]
