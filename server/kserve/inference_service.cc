#include "server/kserve/inference_service.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/error.h"
#include "inference/inference.pb.h"
#include "server/kserve/infer_handler.h"
#include "server/kserve/kserve_service.h"
#include "server/kserve/metadata.h"
#include "server/methods/shared_tensors.h"
#include "server/version.h"

namespace posenc::server {
namespace {

using Answer = absl::StatusOr<std::unique_ptr<google::protobuf::Message>>;

// What a question asks of.
struct Facts {
  const Inference::Counts& counts;
  bool ready;
  Regions* regions;  // null: no memory is shared
  CallSharing sharing;
};

// `answer(request, facts, &response)` as a function of the request's bytes.
template <typename Request, typename Response, auto answer>
Answer Ask(absl::string_view bytes, const Facts& facts) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return core::FieldInvalid(
        "", "the message is not a valid protobuf message of this call");
  }
  auto response = std::make_unique<Response>();
  const absl::Status status = answer(request, facts, response.get());
  if (!status.ok()) return status;
  return response;
}

absl::Status AskLive(const inference::ServerLiveRequest& /*request*/,
                     const Facts& /*facts*/,
                     inference::ServerLiveResponse* response) {
  response->set_live(true);
  return absl::OkStatus();
}

absl::Status AskReady(const inference::ServerReadyRequest& /*request*/,
                      const Facts& facts,
                      inference::ServerReadyResponse* response) {
  response->set_ready(facts.ready);
  return absl::OkStatus();
}

absl::Status AskModelReady(const inference::ModelReadyRequest& request,
                           const Facts& facts,
                           inference::ModelReadyResponse* response) {
  response->set_ready(facts.ready &&
                      FindModel(request.name(), request.version()).ok());
  return absl::OkStatus();
}

absl::Status AskServer(const inference::ServerMetadataRequest& /*request*/,
                       const Facts& facts,
                       inference::ServerMetadataResponse* response) {
  response->set_name("posenc");
  response->set_version(kVersion);
  for (const char* const extension :
       {"statistics", "model_configuration", "parameters"}) {
    response->add_extensions(extension);
  }
  if (facts.regions != nullptr) {
    response->add_extensions("system_shared_memory");
  }
  return absl::OkStatus();
}

absl::Status AskMetadata(const inference::ModelMetadataRequest& request,
                         const Facts& /*facts*/,
                         inference::ModelMetadataResponse* response) {
  const auto model = FindModel(request.name(), request.version());
  if (model.ok()) *response = MetadataOf(**model);
  return model.status();
}

absl::Status AskConfig(const inference::ModelConfigRequest& request,
                       const Facts& /*facts*/,
                       inference::ModelConfigResponse* response) {
  const auto model = FindModel(request.name(), request.version());
  if (model.ok()) *response->mutable_config() = ConfigOf(**model);
  return model.status();
}

absl::Status AskStatistics(const inference::ModelStatisticsRequest& request,
                           const Facts& facts,
                           inference::ModelStatisticsResponse* response) {
  if (!request.name().empty()) {
    const auto model = FindModel(request.name(), request.version());
    if (!model.ok()) return model.status();
  }
  for (const Model& model : Models()) {
    if (!request.name().empty() && request.name() != model.name) continue;
    inference::ModelStatistics* const statistics = response->add_model_stats();
    statistics->set_name(std::string(model.name));
    statistics->set_version(kModelVersion);
    facts.counts[&model - Models().data()].Tell(statistics);
  }
  return absl::OkStatus();
}

absl::Status AskIndex(const inference::RepositoryIndexRequest& request,
                      const Facts& facts,
                      inference::RepositoryIndexResponse* response) {
  if (request.ready() && !facts.ready) return absl::OkStatus();
  for (const Model& model : Models()) {
    auto* const entry = response->add_models();
    entry->set_name(std::string(model.name));
    entry->set_version(kModelVersion);
    entry->set_state("READY");
  }
  return absl::OkStatus();
}

absl::Status AskShared(
    const inference::SystemSharedMemoryStatusRequest& request,
    const Facts& facts, inference::SystemSharedMemoryStatusResponse* response) {
  const absl::Status allowed = SharedTensors::CheckAllowed(facts.sharing);
  if (!allowed.ok()) return allowed;
  return core::Prefixed("name", facts.regions->Tell(request.name(), response));
}

absl::Status RegisterShared(
    const inference::SystemSharedMemoryRegisterRequest& request,
    const Facts& facts,
    inference::SystemSharedMemoryRegisterResponse* /*response*/) {
  const absl::Status allowed = SharedTensors::CheckAllowed(facts.sharing);
  if (!allowed.ok()) return allowed;
  return facts.regions->Register(request);
}

absl::Status UnregisterShared(
    const inference::SystemSharedMemoryUnregisterRequest& request,
    const Facts& facts,
    inference::SystemSharedMemoryUnregisterResponse* /*response*/) {
  const absl::Status allowed = SharedTensors::CheckAllowed(facts.sharing);
  if (allowed.ok()) facts.regions->Unregister(request.name());
  return allowed;
}

absl::Status AskCudaStatus(
    const inference::CudaSharedMemoryStatusRequest& /*request*/,
    const Facts& /*facts*/,
    inference::CudaSharedMemoryStatusResponse* /*response*/) {
  return absl::OkStatus();
}

// perf_analyzer unregisters what it never registered.
absl::Status UnregisterCuda(
    const inference::CudaSharedMemoryUnregisterRequest& /*request*/,
    const Facts& /*facts*/,
    inference::CudaSharedMemoryUnregisterResponse* /*response*/) {
  return absl::OkStatus();
}

// RPCs of the protocol that this server does not have, or may not have, and
// why.
struct Lack {
  absl::string_view name;
  absl::string_view why;
};
constexpr char kBuiltIn[] = "the models are built in";
constexpr char kNoMemory[] = "this server has no shared memory";
constexpr char kFlags[] = "posencd is configured by flags and SIGHUP";
constexpr Lack kLacks[] = {
    {"RepositoryModelLoad", kBuiltIn},
    {"RepositoryModelUnload", kBuiltIn},
    {"SystemSharedMemoryStatus", kNoMemory},
    {"SystemSharedMemoryRegister", kNoMemory},
    {"SystemSharedMemoryUnregister", kNoMemory},
    {"CudaSharedMemoryRegister", "this server knows no GPU"},
    {"TraceSetting", kFlags},
    {"LogSettings", kFlags},
};

// "ServerLive" of "/inference.GRPCInferenceService/ServerLive"; empty if it is
// another service's.
absl::string_view NameIn(absl::string_view path) {
  const bool ours = absl::ConsumePrefix(&path, "/") &&
                    absl::ConsumePrefix(&path, kInferenceService) &&
                    absl::ConsumePrefix(&path, "/");
  return ours ? path : "";
}

}  // namespace

struct InferenceService::Question {
  absl::string_view name;
  bool needs_token;
  Answer (*ask)(absl::string_view bytes, const Facts& facts);
  bool shares = false;  // it is only there if memory is shared
};

// Like health, whether the server is there and ready is no secret.
absl::Span<const InferenceService::Question> InferenceService::Questions() {
  using namespace inference;  // NOLINT(google-build-using-namespace)
  static constexpr Question kQuestions[] = {
      {"ServerLive", false,
       Ask<ServerLiveRequest, ServerLiveResponse, AskLive>},
      {"ServerReady", false,
       Ask<ServerReadyRequest, ServerReadyResponse, AskReady>},
      {"ModelReady", false,
       Ask<ModelReadyRequest, ModelReadyResponse, AskModelReady>},
      {"ServerMetadata", true,
       Ask<ServerMetadataRequest, ServerMetadataResponse, AskServer>},
      {"ModelMetadata", true,
       Ask<ModelMetadataRequest, ModelMetadataResponse, AskMetadata>},
      {"ModelConfig", true,
       Ask<ModelConfigRequest, ModelConfigResponse, AskConfig>},
      {"ModelStatistics", true,
       Ask<ModelStatisticsRequest, ModelStatisticsResponse, AskStatistics>},
      {"RepositoryIndex", true,
       Ask<RepositoryIndexRequest, RepositoryIndexResponse, AskIndex>},
      {"SystemSharedMemoryStatus", true,
       Ask<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse,
           AskShared>,
       true},
      {"SystemSharedMemoryRegister", true,
       Ask<SystemSharedMemoryRegisterRequest,
           SystemSharedMemoryRegisterResponse, RegisterShared>,
       true},
      {"SystemSharedMemoryUnregister", true,
       Ask<SystemSharedMemoryUnregisterRequest,
           SystemSharedMemoryUnregisterResponse, UnregisterShared>,
       true},
      {"CudaSharedMemoryStatus", true,
       Ask<CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse,
           AskCudaStatus>},
      {"CudaSharedMemoryUnregister", true,
       Ask<CudaSharedMemoryUnregisterRequest,
           CudaSharedMemoryUnregisterResponse, UnregisterCuda>},
  };
  return kQuestions;
}

class InferenceService::AskCall final : public SmallCall {
 public:
  AskCall(const InferenceService* service, const Question* question)
      : SmallCall({.service = kInferenceService, .name = question->name},
                  question->needs_token),
        service_(service),
        question_(question) {}

 private:
  void OnMessage(absl::string_view message) override {
    CallSharing sharing;
    sharing.files = service_->shared_files_;
    if (sharing.files != nullptr)
      sharing.allowed = sharing.files->Allows(Peer());
    const Answer answer =
        question_->ask(message, {service_->counts_, service_->ready_.load(),
                                 service_->regions_.get(), sharing});
    if (!answer.ok()) return End(answer.status());
    WriteLast(**answer);
  }
  void OnWritten(bool /*taken*/) override {}
  void OnLastMessage() override {
    End(core::FieldRequired("", "no message was sent"));
  }

  const InferenceService* const service_;
  const Question* const question_;
};

InferenceService::InferenceService(SharedFiles* shared_files)
    : shared_files_(shared_files),
      regions_(shared_files == nullptr
                   ? nullptr
                   : std::make_unique<Regions>(shared_files)) {}

std::vector<Method> InferenceService::Methods() {
  const auto start = [this](auto function) {
    return [this, function](const MethodContext& context) {
      return function(context, &counts_, regions_.get());
    };
  };
  return {
      {kInferenceService, "ModelInfer", false, start(StartModelInfer), true},
      {kInferenceService, "ModelStreamInfer", true,
       start(StartModelStreamInfer), true}};
}

absl::StatusOr<std::shared_ptr<SmallCall>> InferenceService::Make(
    absl::string_view path, std::uint64_t /*connection*/) {
  const absl::string_view name = NameIn(path);
  for (const Question& question : Questions()) {
    if (question.name == name && (!question.shares || regions_ != nullptr)) {
      return std::make_shared<AskCall>(this, &question);
    }
  }
  return nullptr;
}

absl::Status InferenceService::WhyNot(absl::string_view path) const {
  const absl::string_view name = NameIn(path);
  for (const Lack& lack : kLacks) {
    if (lack.name == name) {
      return absl::UnimplementedError(absl::StrCat(name, ": ", lack.why));
    }
  }
  return absl::OkStatus();
}

std::optional<ExtraServiceFactory> KserveService() {
  return ExtraServiceFactory{
      inference::ModelInferRequest::descriptor()->file()->service(0),
      [](SharedFiles* shared_files) {
        return std::make_unique<InferenceService>(shared_files);
      }};
}

}  // namespace posenc::server
