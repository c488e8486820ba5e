// posenc-fuzz-seeds VECTORS CONFIGS MODELS OUT: writes initial inputs. The
// requests of the conformance vectors go to OUT/request, the same requests in
// KServe's protocol to OUT/kserve, and configurations to OUT/model-config, each
// in its target's format, and the requests as messages to OUT/split. Files
// below MODELS go to OUT/gguf or OUT/safetensors, or, if they are JSON, to
// OUT/model-config. text_seeds.h has the rest.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "inference/inference.pb.h"
#include "nlohmann/json.hpp"
#include "posenc/v1/service.pb.h"
#include "tests/fuzz/text_seeds.h"

namespace posenc::fuzz {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns request_fuzz.cc's numbers of methods.
const std::map<std::string, int>& Methods() {
  static const auto* const methods = new std::map<std::string, int>{
      {"ResolveRope", 1},    {"BuildTable", 2},     {"BuildBias", 4},
      {"BuildPositions", 5}, {"ApplyRope", 6},      {"Reposition", 8},
      {"AddEncoding", 10},   {"ScoreRelative", 11}, {"ConvertPairing", 12},
      {"AnalyzeRope", 13},   {"DiagnoseRope", 14}};
  return *methods;
}

// Writes a configuration for model_config_fuzz.cc, each with another profile.
void WriteConfig(const fs::path& file, const std::string& text) {
  static int number = 0;
  std::ofstream(file, std::ios::binary)
      << static_cast<char>(number % 7) << static_cast<char>(number) << text;
  ++number;
}

const char* DatatypeOf(v1::Dtype dtype) {
  constexpr const char* kNames[] = {"",     "FP32",  "FP16", "BF16",
                                    "FP64", "INT32", "INT64"};
  return dtype < static_cast<int>(std::size(kNames)) ? kNames[dtype] : "";
}

// Returns a field's value in a message's JSON, as text.
std::string ValueOf(const nlohmann::json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

// Returns the request in the form of KServe's clients: tensors as inputs,
// everything else as text.
inference::ModelInferRequest AsInference(
    const std::string& rpc, const google::protobuf::Message& request) {
  inference::ModelInferRequest inference;
  std::string model;
  for (const char c : rpc) {
    if (std::isupper(c) != 0 && !model.empty()) model.push_back('_');
    model.push_back(static_cast<char>(std::tolower(c)));
  }
  inference.set_model_name(model);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(request, &text, options);
  const nlohmann::json json = nlohmann::json::parse(text);
  for (const auto& [name, value] : json.items()) {
    const auto* const field = request.GetDescriptor()->FindFieldByName(name);
    if (field->message_type() != v1::Tensor::descriptor()) {
      (*inference.mutable_parameters())[name].set_string_param(ValueOf(value));
      continue;
    }
    v1::Tensor tensor;
    tensor.CopyFrom(request.GetReflection()->GetMessage(request, field));
    auto* const input = inference.add_inputs();
    input->set_name(name);
    input->set_datatype(DatatypeOf(tensor.dtype()));
    *input->mutable_shape() = tensor.shape();
    if (tensor.values_size() == 0) {
      inference.add_raw_input_contents(tensor.data());
    } else {
      *input->mutable_contents()->mutable_fp64_contents() = tensor.values();
    }
  }
  return inference;
}

// Moves the tensors to the file "a" of shared_folder.h, one after the other.
// Returns false if there is none.
bool ShareTensors(google::protobuf::Message* message, std::int64_t* offset) {
  auto* const tensor = dynamic_cast<v1::Tensor*>(message);
  if (tensor != nullptr) {
    if (tensor->data().empty() && tensor->values().empty()) return false;
    tensor->mutable_shared()->set_name("a");
    tensor->mutable_shared()->set_offset(*offset);
    *offset += static_cast<std::int64_t>(tensor->data().size()) +
               8 * tensor->values_size();  // 8 is the largest element
    tensor->clear_data();
    tensor->clear_values();
    return true;
  }
  const auto* const reflection = message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  bool any = false;
  for (const auto* const field : fields) {
    if (field->message_type() == nullptr || field->is_repeated()) continue;
    any |= ShareTensors(reflection->MutableMessage(message, field), offset);
  }
  return any;
}

// Directs all outputs that the request can place to the file "b".
void ShareOutputs(google::protobuf::Message* request) {
  const auto* const type = request->GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    if (type->field(i)->message_type() != v1::SharedMemory::descriptor()) {
      continue;
    }
    v1::SharedMemory place;
    place.set_name("b");
    place.set_offset(16384 * i);
    request->GetReflection()
        ->MutableMessage(request, type->field(i))
        ->CopyFrom(place);
  }
}

void WriteVectors(const fs::path& vectors, const fs::path& out) {
  const fs::path requests = out / "request";
  const fs::path splits = out / "split";
  const fs::path inferences = out / "kserve";
  const fs::path configs = out / "model-config";
  fs::create_directories(requests);
  fs::create_directories(splits);
  fs::create_directories(inferences);
  fs::create_directories(configs);
  for (const auto& entry : fs::directory_iterator(vectors)) {
    const auto cases = nlohmann::json::parse(ReadFile(entry.path()));
    for (const auto& one : cases) {
      const std::string rpc = one.at("rpc");
      const auto config = one.at("request").value(
          nlohmann::json::json_pointer("/rope/configJson"), std::string());
      const std::string name = one.at("name");
      if (!config.empty()) WriteConfig(configs / name, config);
      const auto method = Methods().find(rpc);
      if (method == Methods().end()) continue;
      const auto* const type =
          google::protobuf::DescriptorPool::generated_pool()
              ->FindMessageTypeByName(
                  absl::StrCat("posenc.v1.", rpc, "Request"));
      if (type == nullptr) continue;
      const std::unique_ptr<google::protobuf::Message> request(
          google::protobuf::MessageFactory::generated_factory()
              ->GetPrototype(type)
              ->New());
      // Some vectors of errors cannot be messages in JSON.
      if (!google::protobuf::util::JsonStringToMessage(one.at("request").dump(),
                                                       request.get())
               .ok()) {
        continue;
      }
      std::ofstream(requests / name, std::ios::binary)
          << static_cast<char>(method->second) << '\0' << '\0'
          << request->SerializeAsString();
      std::ofstream(splits / name, std::ios::binary)
          << '\0' << request->SerializeAsString();
      std::ofstream(inferences / name, std::ios::binary)
          << '\0' << '\0' << '\0'
          << AsInference(rpc, *request).SerializeAsString();
      std::int64_t offset = 0;
      if (!ShareTensors(request.get(), &offset)) continue;
      for (const char* const prefix : {"shared-", "outputs-"}) {
        if (*prefix == 'o') ShareOutputs(request.get());
        std::ofstream(requests / (prefix + name), std::ios::binary)
            << static_cast<char>(method->second) << '\0' << '\0'
            << request->SerializeAsString();
      }
    }
  }
}

void WriteConfigs(const fs::path& configs, const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(configs)) {
    if (entry.path().extension() != ".json") continue;
    WriteConfig(out / entry.path().filename(), ReadFile(entry.path()));
  }
}

// Files of many models have the same name, so the output is named after their
// path.
void WriteModels(const fs::path& models, const fs::path& out) {
  fs::create_directories(out / "gguf");
  fs::create_directories(out / "safetensors");
  for (const auto& entry : fs::recursive_directory_iterator(models)) {
    const fs::path extension = entry.path().extension();
    std::string name = entry.path().lexically_relative(models).string();
    std::replace(name.begin(), name.end(), '/', '-');
    if (extension == ".gguf" || extension == ".safetensors") {
      std::string bytes = ReadFile(entry.path());
      const fs::path folder = out / extension.string().substr(1);
      std::ofstream(folder / name, std::ios::binary) << bytes;
      // A GGUF of version 2 has the same layout as one of version 3.
      constexpr std::size_t kVersion = 4;
      if (extension != ".gguf" || bytes.size() <= kVersion) continue;
      bytes[kVersion] = 2;
      std::ofstream(folder / ("version-2-" + name), std::ios::binary) << bytes;
    } else if (extension == ".json") {
      WriteConfig(out / "model-config" / name, ReadFile(entry.path()));
    }
  }
}

}  // namespace
}  // namespace posenc::fuzz

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "posenc-fuzz-seeds VECTORS CONFIGS MODELS OUT\n");
    return 2;
  }
  // Touches the messages, so that they are linked.
  posenc::v1::ApplyRopeRequest::descriptor();
  const std::filesystem::path out(argv[4]);
  posenc::fuzz::WriteVectors(argv[1], out);
  posenc::fuzz::WriteConfigs(argv[2], out / "model-config");
  posenc::fuzz::WriteModels(argv[3], out);
  posenc::fuzz::WriteTexts(out);
  return 0;
}
