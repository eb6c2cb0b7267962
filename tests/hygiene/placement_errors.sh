#!/bin/bash
# A placement that would train wrongly does not compile:   placement_errors.sh COMPILER [FLAG...]
#
# Each mistake is refused by one sentence, which says what to write instead.
set -u
mistakes=(  # a statement, and words of the sentence
  'column_linear(I, W0)' 'column_linear needs copy_to(axis, x): without it the gradient of x lacks'
  'column_linear(P, W0)' 'column_linear needs whole inputs: reduce_from<replicated>'
  'column_linear(seq, W0)' 'column_linear needs whole inputs: gather_from<replicated>'
  'column_linear(R, W1)' 'the weight (out, in) of column_linear is cut by its outputs'
  'column_linear(R, W0, I)' 'the bias of column_linear is cut as its outputs are'
  'row_linear(S, W1, I)' 'a bias in row_linear is added once per rank'
  'row_linear(R, W1)' 'row_linear needs some columns of its inputs: scatter_to<-1>'
  'row_linear(P, W1)' 'row_linear needs some columns of its inputs: reduce_scatter_from<-1>'
  'row_linear(seq, W1)' 'row_linear needs inputs that are cut by their last axis: all_to_all<-1>'
  'row_linear(S, W0)' 'the weight (out, in) of row_linear is cut by its inputs'
  'P + I' 'a term beside partial sums is added once per rank: reduce_from(axis, sums) + term'
  'P * P' 'the product of sums is not the sum of products'
  'P * I' 'partial sums may be multiplied with what is replicated alone'
  'I + R' 'its gradient would not be summed over the ranks; copy_to(axis, x) first'
  'I + S' 'one operand is whole, the other is sharded: scatter_to<dim>'
  'S + seq' 'the operands are sharded along different dimensions'
  'relu(P)' 'a function of a sum is not the sum of functions'
  'rms_norm(P, I)' 'a norm of partial sums is not the norm of their sum'
  'rms_norm(S, R)' 'a norm needs whole rows'
  'rms_norm(seq, I)' "the gradient of a norm's parameters must be summed over the ranks"
  'rms_norm(I, R)' "a norm's parameters need the placement of its input"
  'copy_to(a, R)' 'a second copy_to sums its gradient twice'
  'copy_to(a, P)' 'partial sums are no tensor to copy'
  'copy_to(a, S)' 'copy_to takes what all ranks have'
  'reduce_from(a, I)' 'all ranks have this already: its sum over the ranks counts it once per rank'
  'reduce_from(a, S)' 'reduce_from adds summands, these are chunks: gather_from(axis, chunk)'
  'reduce_from<partial>(a, P)' 'the result is whole on all ranks'
  'gather_from(a, P)' 'gather_from joins chunks, these are summands'
  'gather_from(a, I)' 'all ranks have the whole of this already'
  'scatter_to<1>(a, P)' 'a chunk of a partial sum is not a chunk of the sum'
  'scatter_to<1>(a, S)' 'scatter_to wants a tensor that all ranks have whole'
  'reduce_scatter_from<1>(a, I)' 'all ranks have the sum of this already: scatter_to<dim>'
  'reduce_scatter_from<1>(a, S)' 'reduce_scatter_from adds summands, these are chunks'
  'all_to_all<0>(a, I)' 'all_to_all leads from one cut to another'
  'all_to_all<1>(a, seq)' 'this is cut by that axis already'
  'matmul(P, P)' 'the product of sums is not the sum of products'
  'matmul(I, W1)' 'its gradient would not be summed over the ranks; copy_to(axis, x) first'
  'matmul(W1, R)' 'no matrix product is defined for these placements'
  'cross_entropy(S, y)' 'each rank has some classes of these logits: vocab_cross_entropy'
  'vocab_cross_entropy(a, I, 8, y)' 'vocab_cross_entropy takes logits that are cut by classes'
  'vocab_parallel_embedding(a, I, 8, y)' 'the table of vocab_parallel_embedding is cut by its rows'
  'cross_entropy(P, y)' 'logits that are partial sums have no softmax'
  'R.backward()' 'a replicated loss counts once per rank'
  'S.backward()' 'a loss is one number'
  'ready_plan(y)' 'ready_plan knows gpt, llama, bert_classifier and encoder_decoder'
)
program() {  # program STATEMENT...
  cat <<'END'
#include <first/placements/algebra.hpp>
#include <parx/tensor_parallel/plans.hpp>
#include <first/placements/transitions.hpp>
#include <first/placements/vocabulary.hpp>
using namespace parx::tp;
using f = float;
void calls(parx::rank_axis& a, replicated<f> R, invariant<f> I, partial<f> P, sharded<f, -1> S,
           sharded<f, 1> seq, sharded<f, 0> W0, sharded<f, 1> W1, parx::tensor<int> y) {
  (void)(reduce_from(a, row_linear(relu(column_linear(copy_to(a, I), W0, W0)), W1)) + I);
  (void)reduce_scatter_from<1>(a, P + R * P), (void)gather_from<replicated>(a, seq);
  (void)vocab_parallel_embedding(a, W0, 8, y), (void)vocab_cross_entropy(a, S, 8, y);
  (void)cross_entropy(I, y), (void)rms_norm(seq, copy_to(a, I)), (void)all_to_all<-1>(a, seq);
  I.backward(), P.backward();
END
  printf '  (void)(%s);\n' "$@"
  echo '}'
}
# As programs of the library read the headers, which is less to read.
compile() { "$@" -DPARX_SEPARATE_COMPILATION -std=c++20 -fsyntax-only -x c++ - 2>&1; }
said=$(program '0' | compile "$@") || { echo "$said"; exit 1; }
statements=()
for ((i = 0; i < ${#mistakes[@]}; i += 2)); do statements+=("${mistakes[i]}"); done
case $* in *clang*) set -- "$@" -ferror-limit=0 ;; esac  # it stops at 20
said=$(program "${statements[@]}" | compile "$@") && { echo 'it compiles'; exit 1; }
first=$(($(program 0 | wc -l) - 1))
# Of each mistake's line, the sentence that the compiler says of it.
for ((i = 0; i < ${#mistakes[@]}; i += 2)); do
  grep -qF -- "${mistakes[i + 1]}" <<<"$said" ||
    { echo "not said of ${mistakes[i]}: ${mistakes[i + 1]}"; echo "$said"; exit 1; }
  line=$((first + i / 2))
  grep -q "<stdin>:$line:" <<<"$said" || { echo "${mistakes[i]} compiles"; exit 1; }
done
# And nothing but such sentences.
others=$(grep 'error:' <<<"$said" | grep -v 'static.assert')
[ -z "$others" ] || { echo "$others"; exit 1; }
count=$(grep -c 'error:' <<<"$said")
[ "$count" = ${#statements[@]} ] ||
  { grep 'error:' <<<"$said"; echo "$count sentences for ${#statements[@]} mistakes"; exit 1; }
echo "${#statements[@]} mistakes, a sentence each"
