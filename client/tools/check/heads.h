// Index arithmetic for a tensor of heads in any layout of the contract.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace posenc::check {

// The extents of the tensor, and the stride of each extent in elements. Element
// (b, s, h, d) of a dense tensor is at Offset(b, s, h) + d.
struct HeadIndex {
  // `order` names the extents, the outermost first, as the names of the
  // contract's layouts do: "bshd", "bhsd" and "sbhd" (batch, sequence, head,
  // dimension), or "thd" for packed tokens without a batch. `shape` has one
  // extent for each letter.
  static HeadIndex Of(std::string_view order,
                      const std::vector<std::int64_t>& shape) {
    HeadIndex index;
    std::int64_t stride = 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      switch (order[i]) {
        case 'b':
          index.batch = shape[i];
          index.batch_stride = stride;
          break;
        case 's':
        case 't':
          index.tokens = shape[i];
          index.token_stride = stride;
          break;
        case 'h':
          index.heads = shape[i];
          index.head_stride = stride;
          break;
        default:
          index.head_dim = shape[i];
          break;
      }
      stride *= shape[i];
    }
    return index;
  }

  std::int64_t Offset(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return b * batch_stride + s * token_stride + h * head_stride;
  }

  std::int64_t batch = 1, tokens = 1, heads = 1, head_dim = 1;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
};

}  // namespace posenc::check
