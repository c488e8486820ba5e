#include "core/doctor/key_checks.h"

#include <utility>
#include <vector>

#include "core/interpretation/json_text.h"

namespace posenc::core::doctor {

void CheckKeysTwice(const DoctorInput& input, std::vector<Finding>* findings) {
  for (const interpretation::JsonText::Twice& twice :
       interpretation::ReadJsonText(input.text).twice) {
    Finding finding = MakeFinding(
        "config.key-twice", {input.path, twice.path, twice.first, twice.last});
    finding.inputs = {input.path};
    finding.keys = {twice.path};
    findings->push_back(std::move(finding));
  }
}

}  // namespace posenc::core::doctor
