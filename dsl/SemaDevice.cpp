#include "dsl/Sema.h"

#include "dsl/DeviceFields.h"
#include "dsl/Numbers.h"

#include <algorithm>
#include <cmath>

namespace rho::dsl {

namespace {

class DeviceChecker {
public:
  DeviceChecker(const ast::Device &syntax, Findings &findings)
      : syntax(syntax), findings(findings) {}

  std::optional<Device> run() {
    device.name = syntax.name.text;
    device.span = syntax.name.span;
    good = !syntax.broken;
    if (isReserved(device.name, false))
      error(DiagId::reserved_name, {device.name, "device"}, device.span);
    for (const ast::DeviceEntry &entry : syntax.entries)
      if (first(entry.key, here()))
        this->entry(entry);
    for (const ast::DeviceBlock &block : syntax.blocks)
      if (first(block.key, here()))
        rates(block);
    if (!syntax.broken)
      completeness();
    if (!good)
      return std::nullopt;
    return std::move(device);
  }

private:
  void error(DiagId id, const std::vector<std::string> &args, Span span) {
    findings.add(id, args, span);
    good = false;
  }
  std::string here() const { return "device '" + device.name + "'"; }

  bool first(const ast::Name &key, const std::string &where) {
    if (seen.emplace(where + " " + key.text, key.span).second)
      return true;
    error(DiagId::duplicate_entry, {shown(key.text), where}, key.span);
    return false;
  }

  void entry(const ast::DeviceEntry &entry) {
    const std::string &key = entry.key.text;
    if (key == "product")
      return product(entry);
    if (key == "target")
      return target(entry);
    std::vector<std::string> known = {"product", "target"};
    for (const DeviceField &field : deviceFields()) {
      if (key == field.name)
        return number(entry, field);
      known.emplace_back(field.name);
    }
    known.insert(known.end(), {"tensor", "mma", "throughput"});
    error(DiagId::unknown_entry, {shown(key), here(), listed(key, known)}, entry.key.span);
  }

  void product(const ast::DeviceEntry &entry) {
    if (entry.string && !entry.string->text.empty())
      device.product = entry.string->text;
    else
      error(DiagId::device_form, {"product", "the name of a GPU in quotes"}, entry.valueSpan);
  }

  // sm_, the digits of the compute capability, perhaps a letter.
  void target(const ast::DeviceEntry &entry) {
    std::string text = entry.word ? entry.word->text : "";
    std::string_view digits(text);
    digits.remove_prefix(std::min<size_t>(text.size(), 3));
    if (digits.ends_with('a') || digits.ends_with('f'))
      digits.remove_suffix(1);
    bool valid = text.starts_with("sm_") && (digits.size() == 2 || digits.size() == 3) &&
                 digits[0] != '0' &&
                 digits.find_first_not_of("0123456789") == std::string_view::npos;
    constexpr int oldest = 80; // has the instructions that kernels are made of
    if (valid && std::stoi(std::string(digits)) >= oldest)
      device.target = text;
    else
      error(DiagId::device_form, {"target", "an architecture such as sm_80, or a newer one"},
            entry.valueSpan);
  }

  // The number of an entry that has this unit.
  std::optional<double> valueOf(const ast::DeviceEntry &entry, const std::string &unit,
                                const std::string &form) {
    if (!entry.number) {
      error(DiagId::device_form, {shown(entry.key.text), form}, entry.valueSpan);
      return std::nullopt;
    }
    if (entry.unit == unit)
      return entry.number;
    error(DiagId::device_unit,
          {shown(entry.key.text), entry.unit.empty() ? "no unit" : shown(entry.unit),
           unit.empty() ? "none" : unit},
          entry.valueSpan);
    return std::nullopt;
  }

  bool within(const ast::DeviceEntry &entry, double value, double least, double most) {
    if (value >= least && value <= most)
      return true;
    error(DiagId::device_out_of_range,
          {shown(entry.key.text), printNumber(value), printNumber(least), printNumber(most)},
          entry.valueSpan);
    return false;
  }

  void number(const ast::DeviceEntry &entry, const DeviceField &field) {
    std::string unit(field.unit);
    std::string form = field.whole() ? "a whole number" : "a number";
    std::optional<double> value = valueOf(entry, unit, unit.empty() ? form : form + " of " + unit);
    if (!value || !within(entry, *value, field.least, field.most))
      return;
    if (field.whole() && *value != std::floor(*value))
      return error(DiagId::device_form, {std::string(field.name), form}, entry.valueSpan);
    field.set(device, *value);
  }

  void rates(const ast::DeviceBlock &block) {
    const std::string &key = block.key.text;
    bool tensor = key == "tensor", mma = key == "mma";
    if (!tensor && !mma && key != "throughput")
      return error(DiagId::unknown_entry,
                   {shown(key), here(), listed(key, {"tensor", "mma", "throughput"})},
                   block.key.span);
    std::string where = "'" + key + "' of " + here();
    for (const ast::DeviceEntry &entry : block.entries) {
      if (!first(entry.key, where))
        continue;
      const std::string &name = entry.key.text;
      std::optional<InstructionClass> which = instructionClassNamed(name);
      bool operand = std::find(tensorTypes.begin(), tensorTypes.end(), name) != tensorTypes.end();
      if (tensor || mma ? !operand : !which) {
        error(DiagId::unknown_entry,
              {shown(name), where,
               listed(name, tensor || mma ? tensorTypeNames() : instructionClassNames())},
              entry.key.span);
        continue;
      }
      std::optional<double> value = valueOf(entry, "", "a number for each cycle of an SM");
      if (!value || !within(entry, *value, leastPerCycle, mostPerCycle))
        continue;
      if (which && !tensor && !mma)
        device.rates.throughput[static_cast<size_t>(*which)] = *value;
      else
        (tensor ? device.rates.tensor : device.rates.mma)[name] = *value;
    }
  }

  void completeness() {
    std::vector<std::string> missing;
    auto need = [&](std::string_view key, const std::string &where) {
      if (!seen.contains(where + " " + std::string(key)))
        missing.emplace_back(key);
    };
    for (std::string_view key : {"product", "target"})
      need(key, here());
    for (const DeviceField &field : deviceFields())
      if (!field.optional)
        need(field.name, here());
    for (std::string_view key : {"tensor", "throughput"})
      need(key, here());
    if (seen.contains(here() + " throughput"))
      for (size_t i = 0; i < instructionClasses; ++i)
        need(name(static_cast<InstructionClass>(i)), "'throughput' of " + here());
    if (!missing.empty())
      error(DiagId::device_entry_missing, {device.name, join(missing)}, device.span);
    else if (good && device.sharedPerCta > device.sharedPerSm)
      error(DiagId::device_form, {"shared_per_cta", "at most shared_per_sm"},
            seen.at(here() + " shared_per_cta"));
    else if (const int64_t most = mostSharedPerCta(device.target);
             good && device.sharedPerCta > most)
      error(
          DiagId::device_form,
          {"shared_per_cta", "at most " + std::to_string(most / 1024) + " KiB on " + device.target},
          seen.at(here() + " shared_per_cta"));
  }

  const ast::Device &syntax;
  Findings &findings;
  Device device;
  std::map<std::string, Span> seen;
  bool good = true;
};

} // namespace

std::optional<Device> checkDevice(const ast::Device &device, Findings &findings) {
  return DeviceChecker(device, findings).run();
}

} // namespace rho::dsl
