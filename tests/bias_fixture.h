// What the tests of biases share: their arguments.

#pragma once

#include <utility>

#include "core/relative/bias.h"
#include "tests/relative_fixture.h"

namespace posenc::core {

inline BiasArgs Args(Bias bias, BiasRange range = {0, 4, 0, 4}) {
  BiasArgs args;
  args.bias = std::move(bias);
  args.range = range;
  return args;
}

// Parameters of 5 hidden units and 3 heads.
struct FireTensors {
  explicit FireTensors(Dtype dtype)
      : w1(OwnedTensor::Random(dtype, {5, 1}, 1)),
        b1(OwnedTensor::Random(dtype, {5}, 2)),
        w2(OwnedTensor::Random(dtype, {3, 5}, 3)),
        b2(OwnedTensor::Random(dtype, {3}, 4)) {}
  Fire Make(double c, double threshold, double epsilon) const {
    Fire fire;
    fire.c = c;
    fire.threshold = threshold;
    fire.epsilon = epsilon;
    fire.w1 = w1.view();
    fire.b1 = b1.view();
    fire.w2 = w2.view();
    fire.b2 = b2.view();
    return fire;
  }
  OwnedTensor w1, b1, w2, b2;
};

}  // namespace posenc::core
