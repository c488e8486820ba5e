// posenc-false-server READY_FILE: a server with false answers. The table of
// errors tests whether clients notice. The first position of a rotation, or the
// rows of a table, select the fault.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "posenc/v1/service.grpc.pb.h"
#include "tests/conformance/stand_in.h"

namespace {

using posenc::v1::Tensor;

Tensor Zeros(const std::vector<std::int64_t>& shape) {
  Tensor tensor;
  tensor.set_dtype(posenc::v1::DTYPE_FLOAT32);
  std::size_t bytes = sizeof(float);
  for (const std::int64_t extent : shape) {
    tensor.add_shape(extent);
    bytes *= static_cast<std::size_t>(extent);
  }
  tensor.set_data(std::string(bytes, '\0'));
  return tensor;
}

// Changes a tensor, of 2 or 4 dimensions.
void Falsify(std::int64_t how, Tensor* tensor) {
  const int last = tensor->shape_size() - 1;
  std::string* const data = tensor->mutable_data();
  switch (how) {
    case 1:  // another shape with the same number of elements
      tensor->mutable_shape()->SwapElements(last - 1, last);
      break;
    case 2:
      tensor->set_dtype(posenc::v1::DTYPE_INT32);
      break;
    case 3:
      tensor->clear_dtype();
      break;
    case 4:
      data->resize(data->size() - sizeof(float));
      break;
    case 5:
      data->resize(data->size() + sizeof(float));
      break;
    case 6:
      data->clear();
      break;
    case 7:  // more elements, with their bytes
      tensor->set_shape(0, 2 * tensor->shape(0));
      data->resize(2 * data->size());
      break;
    case 8:
      tensor->set_shape(last - 1, -tensor->shape(last - 1));
      tensor->set_shape(last, -tensor->shape(last));
      break;
    default:
      break;
  }
}

class FalseService final
    : public posenc::v1::PositionalEncodingService::Service {
  // Position 9: the answer has no tensor.
  grpc::Status ApplyRope(grpc::ServerContext*,
                         const posenc::v1::ApplyRopeRequest* request,
                         posenc::v1::ApplyRopeResponse* response) override {
    const std::int64_t how = request->positions().start();
    if (how == 9) return grpc::Status::OK;
    *response->mutable_q() = request->q();
    Falsify(how, response->mutable_q());
    return grpc::Status::OK;
  }

  grpc::Status BuildTable(grpc::ServerContext*,
                          const posenc::v1::BuildTableRequest*,
                          posenc::v1::BuildTableResponse*) override {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "ask for a stream"};
  }

  grpc::Status BuildTableStream(
      grpc::ServerContext*, const posenc::v1::BuildTableStreamRequest* request,
      grpc::ServerWriter<posenc::v1::BuildTableStreamResponse>* writer)
      override {
    const std::int64_t rows = request->table().rows();
    posenc::v1::BuildTableStreamResponse part;
    *part.mutable_cos() = Zeros({rows / 2, 64});
    *part.mutable_sin() = part.cos();
    if (rows == 16) Falsify(4, part.mutable_cos());
    part.add_whole_shape(rows);
    part.add_whole_shape(64);
    writer->Write(part);
    part.clear_whole_shape();
    part.set_first_row(rows / 2);
    switch (rows) {
      case 8:  // ends early
        return grpc::Status::OK;
      case 10:  // rows are missing
        part.set_first_row(rows / 2 + 1);
        break;
      case 12:  // more rows than requested
        *part.mutable_cos() = Zeros({rows, 64});
        *part.mutable_sin() = part.cos();
        break;
      case 14:
        part.clear_sin();
        break;
      default:
        break;
    }
    writer->Write(part);
    return grpc::Status::OK;
  }
};

}  // namespace

int main(int argc, char** argv) {
  FalseService service;
  return posenc::conformance::ServeUntilTerminated(argc, argv, &service);
}
