// Implements the RPCs of KServe's service that do not compute tensors.

#include "server/adapters/kserve/kserve_service.h"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "inference/inference.pb.h"
#include "server/adapters/kserve/inference.h"
#include "server/adapters/kserve/models.h"
#include "server/adapters/kserve/regions.h"
#include "server/base/version.h"
#include "server/call/request.h"
#include "server/call/small_answer.h"
#include "server/convert/fields.h"
#include "server/methods/shared_tensors.h"
#include "server/service/extra_service.h"

namespace posenc::server {
namespace {

using namespace inference;  // NOLINT(google-build-using-namespace)

constexpr char kService[] = "inference.GRPCInferenceService";
constexpr char kPlatform[] = "posenc";

void AskLive(const ServerLiveRequest& /*request*/, const Facts& /*facts*/,
             ServerLiveResponse* response) {
  response->set_live(true);
}

void AskReady(const ServerReadyRequest& /*request*/, const Facts& facts,
              ServerReadyResponse* response) {
  response->set_ready(facts.ready);
}

void AskModelReady(const ModelReadyRequest& request, const Facts& facts,
                   ModelReadyResponse* response) {
  response->set_ready(facts.ready &&
                      FindModel(request.name(), request.version()).ok());
}

void AskServer(const ServerMetadataRequest& /*request*/, const Facts& facts,
               ServerMetadataResponse* response) {
  response->set_name(kPlatform);
  response->set_version(kVersion);
  for (const char* const extension :
       {"statistics", "model_configuration", "parameters"}) {
    response->add_extensions(extension);
  }
  if (facts.regions != nullptr) {
    response->add_extensions("system_shared_memory");
  }
}

// Returns the datatype to report for a tensor: the first of its datatypes.
absl::string_view DatatypeOf(const ModelTensor& tensor) {
  return tensor.datatypes.substr(0, tensor.datatypes.find(','));
}

absl::Status AskMetadata(const ModelMetadataRequest& request,
                         const Facts& /*facts*/,
                         ModelMetadataResponse* response) {
  ASSIGN_OR_RETURN(const auto model,
                   FindModel(request.name(), request.version()));
  response->set_name(std::string(model->name));
  response->add_versions(kModelVersion);
  response->set_platform(kPlatform);
  const auto tell = [response](const ModelTensor& tensor,
                               ModelMetadataResponse::TensorMetadata* to) {
    to->set_name(std::string(tensor.name));
    to->set_datatype(std::string(DatatypeOf(tensor)));
    Append(std::vector<std::int64_t>(tensor.rank, -1), to->mutable_shape());
    (*response->mutable_properties())[absl::StrCat(tensor.name, ".datatypes")] =
        std::string(tensor.datatypes);
  };
  for (const auto& input : model->inputs) tell(input, response->add_inputs());
  for (const auto& output : model->outputs) {
    if (output.listed) tell(output, response->add_outputs());
  }
  return absl::OkStatus();
}

absl::Status AskConfig(const ModelConfigRequest& request,
                       const Facts& /*facts*/, ModelConfigResponse* response) {
  ASSIGN_OR_RETURN(const auto model,
                   FindModel(request.name(), request.version()));
  ModelConfig& config = *response->mutable_config();
  config.set_name(std::string(model->name));
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  const auto tell = [](const ModelTensor& tensor, auto* to) {
    to->set_name(std::string(tensor.name));
    to->set_data_type(FindDatatype(DatatypeOf(tensor))->config);
    Append(std::vector<std::int64_t>(tensor.rank, -1), to->mutable_dims());
  };
  for (const auto& input : model->inputs) {
    tell(input, config.add_input());
    config.mutable_input()->rbegin()->set_optional(input.optional);
  }
  for (const auto& output : model->outputs) {
    if (output.listed) tell(output, config.add_output());
  }
  config.mutable_model_transaction_policy()->set_decoupled(false);
  return absl::OkStatus();
}

absl::Status AskStatistics(const ModelStatisticsRequest& request,
                           const Facts& facts,
                           ModelStatisticsResponse* response) {
  if (!request.name().empty()) {
    RETURN_IF_ERROR(FindModel(request.name(), request.version()).status());
  }
  for (std::size_t i = 0; i < Models().size(); ++i) {
    const absl::string_view name = Models()[i].name;
    if (!request.name().empty() && request.name() != name) continue;
    ModelStatistics* const statistics = response->add_model_stats();
    *statistics = facts.counts[i].Told();
    statistics->set_name(std::string(name));
    statistics->set_version(kModelVersion);
  }
  return absl::OkStatus();
}

void AskIndex(const RepositoryIndexRequest& request, const Facts& facts,
              RepositoryIndexResponse* response) {
  if (request.ready() && !facts.ready) return;
  for (const Model& model : Models()) {
    auto* const entry = response->add_models();
    entry->set_name(std::string(model.name));
    entry->set_version(kModelVersion);
    entry->set_state("READY");
  }
}

absl::Status AskShared(const SystemSharedMemoryStatusRequest& request,
                       const Facts& facts,
                       SystemSharedMemoryStatusResponse* response) {
  return core::Prefixed("name", facts.regions->Tell(request.name(), response));
}

absl::Status Register(const SystemSharedMemoryRegisterRequest& request,
                      const Facts& facts,
                      SystemSharedMemoryRegisterResponse* /*response*/) {
  return facts.regions->Register(request);
}

void Unregister(const SystemSharedMemoryUnregisterRequest& request,
                const Facts& facts,
                SystemSharedMemoryUnregisterResponse* /*response*/) {
  facts.regions->Unregister(request.name());
}

// Does nothing, and returns an empty response. perf_analyzer asks about CUDA
// memory, and unregisters regions that it has never registered. Both calls must
// succeed.
template <typename Request, typename Response>
void AskNothing(const Request& /*request*/, const Facts& /*facts*/,
                Response* /*response*/) {}

using Answer = absl::StatusOr<std::string>;

template <typename Result, typename Request, typename Response>
Answer AskBy(Result (*answer)(const Request&, const Facts&, Response*),
             const std::string& bytes, const Facts& facts) {
  Request request;
  if (!request.ParseFromString(bytes)) return NotAMessage();
  Response response;
  if constexpr (std::is_void_v<Result>) {
    answer(request, facts, &response);
  } else {
    RETURN_IF_ERROR(answer(request, facts, &response));
  }
  return response.SerializeAsString();
}

// Parses the request, calls `answer`, and returns the serialized response.
template <auto answer>
Answer Ask(const std::string& bytes, const Facts& facts) {
  return AskBy(answer, bytes, facts);
}

// An RPC of the protocol other than ModelInfer and ModelStreamInfer.
struct Question {
  absl::string_view name;
  Answer (*ask)(const std::string& bytes, const Facts& facts);  // null: refused
  const char* why_not = "";  // reason for a refusal
  bool needs_token = true;
  bool shares = false;  // about shared memory: refused if there is none
};

constexpr char kBuiltIn[] = "the models are built in";
constexpr char kNoMemory[] = "this server has no shared memory";
constexpr char kFlags[] = "posencd is configured by flags and SIGHUP";

constexpr Question kQuestions[] = {
    // No token is needed to ask whether the server is live and ready, as in the
    // health service.
    {"ServerLive", Ask<AskLive>, "", false},
    {"ServerReady", Ask<AskReady>, "", false},
    {"ModelReady", Ask<AskModelReady>, "", false},
    {"ServerMetadata", Ask<AskServer>},
    {"ModelMetadata", Ask<AskMetadata>},
    {"ModelConfig", Ask<AskConfig>},
    {"ModelStatistics", Ask<AskStatistics>},
    {"RepositoryIndex", Ask<AskIndex>},
    {"RepositoryModelLoad", nullptr, kBuiltIn},
    {"RepositoryModelUnload", nullptr, kBuiltIn},
    {"SystemSharedMemoryStatus", Ask<AskShared>, kNoMemory, true, true},
    {"SystemSharedMemoryRegister", Ask<Register>, kNoMemory, true, true},
    {"SystemSharedMemoryUnregister", Ask<Unregister>, kNoMemory, true, true},
    {"CudaSharedMemoryStatus", Ask<AskNothing<CudaSharedMemoryStatusRequest,
                                              CudaSharedMemoryStatusResponse>>},
    {"CudaSharedMemoryRegister", nullptr, "this server knows no GPU"},
    {"CudaSharedMemoryUnregister",
     Ask<AskNothing<CudaSharedMemoryUnregisterRequest,
                    CudaSharedMemoryUnregisterResponse>>},
    {"TraceSetting", nullptr, kFlags},
    {"LogSettings", nullptr, kFlags},
};

class InferenceService final : public ExtraService {
 public:
  // `files` is null if no memory is shared.
  explicit InferenceService(SharedFiles* files) : files_(files) {
    if (files != nullptr) facts_.regions = std::make_unique<Regions>(files);
  }

  std::vector<Method> Methods() override {
    const auto method = [this](const char* name, bool stream) -> Method {
      const auto start = [this, stream](const MethodContext& context) {
        return StartInference(context, &facts_, stream);
      };
      return {{kService, name, stream, true}, start};
    };
    std::vector<Method> all = {method("ModelInfer", false),
                               method("ModelStreamInfer", true)};
    for (const Question& question : kQuestions)
      all.push_back(AsMethod(question));
    return all;
  }

  void SetReady(bool ready) override { facts_.ready.store(ready); }

 private:
  Method AsMethod(const Question& question) {
    const auto start = [this, &question](const MethodContext& context)
        -> absl::StatusOr<std::unique_ptr<CallHandler>> {
      if (question.ask == nullptr || (question.shares && files_ == nullptr)) {
        return absl::UnimplementedError(
            absl::StrCat(question.name, ": ", question.why_not));
      }
      if (question.shares && !context.sharing.allowed) {
        return context.sharing.files->NotAllowed();
      }
      return std::make_unique<SmallAnswer>(
          [this, &question](const std::string& message) {
            return question.ask(message, facts_);
          });
    };
    return {{.service = kService,
             .name = question.name,
             .exempt = true,
             .observed = question.ask != nullptr},
            start,
            question.needs_token};
  }

  SharedFiles* const files_;
  Facts facts_;
};

}  // namespace

ExtraServiceFactory KserveService() {
  return {ModelInferRequest::descriptor()->file()->service(0),
          [](SharedFiles* files) {
            return std::make_unique<InferenceService>(files);
          }};
}

}  // namespace posenc::server
