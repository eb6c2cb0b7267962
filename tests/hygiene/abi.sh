#!/bin/bash
# Objects compiled with different -march flags share no inline function of parx, and one that hands
# parx's types to another does not link, nor do the header-only and the compiled form:
#   abi.sh COMPILER [FLAG...]
set -u
[ "$(uname -m)" = x86_64 ] || { echo "NOT TRIED: the flags here are those of x86-64"; exit 77; }
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" || exit 1

# A unit sums and converts 16-bit floats, by kernels and by hand, and checks the bits by IEEE 754.
cat >unit.cpp <<'END'
#include <array>
#include <bit>
#include <cstdint>

#include <parx/types/half.hpp>
#include <parx/types/reduce.hpp>

extern "C" int UNIT() {
  struct known {
    float value;
    std::uint16_t bits;
  };
  constexpr known table[] = {{0, 0x0000},       {1, 0x3c00},         {-2, 0xc000},
                             {65504, 0x7bff},   {65520, 0x7c00},     {1.0f / 3, 0x3555},
                             {0x1p-24f, 0x0001}, {0x1p-25f, 0x0000}, {0x1.8p-24f, 0x0002},
                             {2049, 0x6800},    {2051, 0x6802},      {-0.0f, 0x8000}};
  constexpr std::size_t count = std::size(table);
  std::array<float, count> values{}, back{};
  std::array<parx::float16, count> halves{};
  for (std::size_t i = 0; i < count; ++i) values[i] = table[i].value;
  parx::convert(values.data(), halves.data(), count);
  parx::convert(halves.data(), back.data(), count);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::bit_cast<std::uint16_t>(halves[i]) != table[i].bits) return 1;
    if (std::bit_cast<std::uint16_t>(parx::float16(back[i])) != table[i].bits) return 2;
  }
  constexpr std::size_t many = 1003;  // whole vectors and a rest
  std::array<parx::float16, many> a{}, b{}, sum{};
  for (std::size_t i = 0; i < many; ++i) {
    a[i] = parx::float16(static_cast<float>(i % 700));
    b[i] = parx::float16(static_cast<float>(i % 300));
  }
  parx::reduce_kernel_for<parx::float16>(parx::reduce_op::sum)(sum.data(), a.data(),
                                                               b.data(), many);
  for (std::size_t i = 0; i < many; ++i) {
    if (static_cast<float>(sum[i]) != static_cast<float>(i % 700 + i % 300)) return 3;
  }
  return 0;
}
END
cat >main.cpp <<'END'
extern "C" int narrow();
extern "C" int wide();
int main() { return 10 * narrow() + wide(); }
END
# One hands a tensor to the other.
cat >taker.cpp <<'END'
#include <parx/tensor/tensor.hpp>
float first_of(const parx::tensor<float>& given) { return given.data()[0]; }
END
cat >giver.cpp <<'END'
#include <parx/tensor/tensor.hpp>
float first_of(const parx::tensor<float>& given);
int main() { return first_of(parx::tensor<float>::zeros({2, 2})) == 0 ? 0 : 1; }
END

failed=0
fail() { echo "FAILED: $*"; failed=1; }
compile() { "${compiler[@]}" -std=c++20 -O1 "$@" || { fail "$*"; exit 1; }; }
compiler=("$@")
v1=-march=x86-64 v3=-march=x86-64-v3
compile $v1 -DUNIT=narrow -c unit.cpp -o narrow.o &
compile $v3 -DUNIT=wide -c unit.cpp -o wide.o &
compile $v1 -c giver.cpp -o giver.o &
compile $v3 -c taker.cpp -o wide_taker.o &
compile $v1 -c taker.cpp -o taker.o &
compile $v1 -DPARX_SEPARATE_COMPILATION -c giver.cpp -o separate_giver.o &
compile $v1 -c main.cpp -o main.o &
wait
compile main.o narrow.o wide.o -lfmt -o program

# What the linker would keep one of, by object.
weak_symbols() { nm --defined-only "$1" | awk '$2 ~ /[WVu]/ && $3 ~ /4parx/ { print $3 }' | sort; }
tag_of() { weak_symbols "$1" | c++filt | grep -o 'parx::v[0-9]*_[0-9]*_[a-z0-9]*' | sort -u; }
common=$(comm -12 <(weak_symbols narrow.o) <(weak_symbols wide.o) | c++filt)
[ -z "$common" ] || fail "both objects have"$'\n'"$common"
narrow_tag=$(tag_of narrow.o) wide_tag=$(tag_of wide.o)
case $narrow_tag in parx::v*_baseline) ;; *) fail "the tag for $v1 is $narrow_tag" ;; esac
case $wide_tag in parx::v*_avx2) ;; *) fail "the tag for $v3 is $wide_tag" ;; esac
for tag in "$narrow_tag" "$wide_tag"; do
  nm -C program | grep -q "$tag" || fail "the program has no $tag"
done

# A library that is compiled for other vectors is told by the compiler, in words.
told() {  # told FLAG LEVEL WORDS
  local said
  said=$(echo '#include <parx/core/abi.hpp>' |
    "${compiler[@]}" -std=c++20 "$1" -DPARX_LIBRARY_VECTORS="$2" -fsyntax-only -x c++ - 2>&1)
  grep -q "$3" <<<"$said" || fail "with $1 and a library of level $2 the compiler says: $said"
}
told $v1 1 "parx's library is compiled for AVX2, this file is not"
told $v3 2 "parx's library is compiled for AVX-512, this file is not"
told $v3 0 "parx's library has no vector flags: leave -march out here"
told $v1 0 '^$'
told $v3 1 '^$'

# Same flags: a program that runs. Different ones: none, and the message says what differs.
compile giver.o taker.o -lfmt -o same && { ./same || fail "the tensor of the other unit is not 0"; }
if message=$("${compiler[@]}" giver.o wide_taker.o -lfmt -o different 2>&1); then
  fail "a tensor was handed to code compiled for other vectors"
elif ! grep -q "${narrow_tag}::tensor<float>" <<<"$message"; then
  fail "the linker does not name $narrow_tag::tensor:"$'\n'"$message"
fi
if message=$("${compiler[@]}" separate_giver.o taker.o -lfmt -o different 2>&1); then
  fail "a tensor of the compiled form was handed to header-only code"
elif ! grep -q "${narrow_tag}_compiled::tensor<float>" <<<"$message"; then
  fail "the linker does not name ${narrow_tag}_compiled::tensor:"$'\n'"$message"
fi
if [ "$(grep -o -w -m1 -e avx2 -e f16c -e fma /proc/cpuinfo | sort -u | wc -l)" -lt 3 ]; then
  echo "NOT TRIED: the program itself, since this processor has no AVX2"
else
  ./program || fail "the units' results are wrong: $?"
fi
[ $failed = 0 ] && echo "units of $narrow_tag and $wide_tag live in one program"
exit $failed
