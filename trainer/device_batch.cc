#include "trainer/device_batch.h"

#include "device/host_copy.h"
#include "device/ops.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {
namespace {

constexpr Device kPinned{MemorySpace::kPinnedHost, 0};

constexpr std::size_t kByRank = 3 * sizeof(double) + sizeof(float);  // bytes of a label

template <typename T>
std::span<T> values_of(const Buffer& buffer) {
  return {reinterpret_cast<T*>(buffer.bytes().data()), buffer.bytes().size() / sizeof(T)};
}

}  // namespace

Result<std::unique_ptr<DeviceBatch>> DeviceBatch::create(const Model<float>& model,
                                                         const Sizes& sizes,
                                                         const MemoryArena& arena) {
  std::unique_ptr<DeviceBatch> made(new DeviceBatch(sizes));
  GW_ASSIGN(made->kernels_, make_layer_kernels(arena.stream()));
  GW_TRY(made->take_ends(model, arena));
  const auto buffers = static_cast<std::size_t>(parameter_elems(model.buffers()));
  if (buffers > 0) {
    GW_ASSIGN(made->buffers_, arena.allocate(MemoryClass::kOther, buffers * sizeof(float)));
    const auto sums = static_cast<std::size_t>(model.statistics_elems());
    GW_ASSIGN(made->statistics_, ReadBack::create(arena, sums * sizeof(double)));
  }
  return made;
}

// What the model's two ends need: samples and labels that are on their way, and losses.
Status DeviceBatch::take_ends(const Model<float>& model, const MemoryArena& arena) {
  if (sizes_.reads) {
    input_ = model.input().elems();
    const auto inputs = static_cast<std::size_t>(sizes_.rows * input_) * sizes_.at_once;
    GW_ASSIGN(samples_here_, Buffer::allocate(inputs * sizeof(float), kPinned));
  }
  if (!sizes_.judges) return {};
  const auto one = static_cast<std::size_t>(sizes_.rows * sizes_.labels);
  const std::size_t all = one * sizes_.at_once;
  GW_ASSIGN(labels_here_, Buffer::allocate(all * sizeof(std::uint32_t), kPinned));
  GW_ASSIGN(labels_there_, arena.allocate(MemoryClass::kOther, one * sizeof(std::uint32_t)));
  GW_ASSIGN(by_label_, arena.allocate(MemoryClass::kOther, 2 * one * sizeof(double)));
  GW_ASSIGN(found_, ReadBack::create(arena, sizes_.at_once * sizeof(Found)));
  classes_ = model.class_share();
  if (!classes_) return {};
  GW_ASSIGN(by_rank_, arena.allocate(MemoryClass::kOther, one * kByRank));
  return {};
}

std::int64_t DeviceBatch::bytes_there(const Model<float>& model, const Sizes& sizes) {
  constexpr auto kOfLabel = static_cast<std::int64_t>(sizeof(std::uint32_t) + 2 * sizeof(double));
  const std::int64_t buffers = parameter_elems(model.buffers());
  std::int64_t bytes = 0;
  if (sizes.judges) {
    const auto of_label = kOfLabel + (model.class_share() ? static_cast<std::int64_t>(kByRank) : 0);
    bytes += sizes.rows * sizes.labels * of_label +
             static_cast<std::int64_t>(sizes.at_once * sizeof(Found));
  }
  if (buffers > 0) {
    bytes += buffers * static_cast<std::int64_t>(sizeof(float)) +
             model.statistics_elems() * static_cast<std::int64_t>(sizeof(double));
  }
  return bytes;
}

std::span<float> DeviceBatch::samples(std::int64_t rows, std::size_t micro) const {
  const auto most = static_cast<std::size_t>(sizes_.rows * input_);
  return values_of<float>(samples_here_)
      .subspan(micro * most, static_cast<std::size_t>(rows * input_));
}

std::span<std::uint32_t> DeviceBatch::labels(std::int64_t rows, std::size_t micro) const {
  const auto most = static_cast<std::size_t>(sizes_.rows * sizes_.labels);
  return values_of<std::uint32_t>(labels_here_)
      .subspan(micro * most, static_cast<std::size_t>(rows * sizes_.labels));
}

Status DeviceBatch::load_samples(std::span<float> x, std::size_t micro) const {
  const Stream stream = kernels_->stream();
  const auto most = static_cast<std::size_t>(sizes_.rows * input_);
  const std::span<const float> here = values_of<float>(samples_here_).subspan(micro * most);
  return copy_bytes(std::as_bytes(here.first(x.size())), kPinned, std::as_writable_bytes(x),
                    stream.device, stream);
}

Status DeviceBatch::load_labels(std::int64_t rows, std::size_t micro) const {
  const Stream stream = kernels_->stream();
  const ConstByteSpan numbers = std::as_bytes(labels(rows, micro));
  return copy_bytes(numbers, kPinned, labels_there_.bytes().first(numbers.size()), stream.device,
                    stream);
}

void DeviceBatch::judge(Loss loss, std::int64_t count, std::span<const float> outputs,
                        std::span<float> by_outputs, std::size_t micro) {
  const auto judged = static_cast<std::size_t>(count);
  const std::span<const std::uint32_t> labels =
      values_of<const std::uint32_t>(labels_there_).first(judged);
  const std::span<double> by_label = values_of<double>(by_label_).first(2 * judged);
  const std::span<double> found = found_.there<double>().subspan(2 * micro, 2);
  if (classes_) {
    const ClassPart<float> part{outputs, labels, classes_->here.begin, classes_->all};
    return judge_part(part, by_outputs, by_label, found);
  }
  if (loss == Loss::kSquares) {
    kernels_->squared_error(outputs, labels, by_outputs, by_label, found);
  } else {
    kernels_->cross_entropy(outputs, labels, by_outputs, by_label, found);
  }
}

// As OutputLoss has it; the labels that are right are counted where no derivative is wanted.
void DeviceBatch::judge_part(const ClassPart<float>& part, std::span<float> by_outputs,
                             std::span<double> by_label, std::span<double> found) {
  const std::size_t count = part.labels.size();
  const std::span<double> numbers(reinterpret_cast<double*>(by_rank_.bytes().data()), 3 * count);
  const std::span<double> sums = numbers.first(2 * count);
  const std::span<double> said = by_outputs.empty() ? numbers.last(count) : std::span<double>();
  const std::span<float> maxima(reinterpret_cast<float*>(numbers.data() + numbers.size()), count);
  kernels_->class_maxima(part, maxima);
  sizes_.peers->start_max(maxima);
  sizes_.peers->await();
  kernels_->class_sums(part, maxima, sums, said);
  sizes_.peers->start_sum(sums);
  if (!said.empty()) sizes_.peers->start_max(said);
  sizes_.peers->await();
  kernels_->class_losses(part, maxima, sums, said, by_outputs, by_label, found);
}

auto DeviceBatch::found() const -> Result<std::span<const Found>> {
  GW_TRY(kernels_->status());
  if (sizes_.judges) return found_.read<Found>();
  GW_TRY(wait_for(kernels_->stream()));
  return std::span<const Found>();
}

Status DeviceBatch::set_buffers(std::span<const float> values) const {
  if (values.empty()) return {};
  const Stream stream = kernels_->stream();
  GW_TRY(copy_bytes(std::as_bytes(values), Device{}, buffers_.bytes(), stream.device, stream));
  return wait_for(stream);
}

std::span<const float> DeviceBatch::buffers() const { return values_of<const float>(buffers_); }

std::span<double> DeviceBatch::statistics() const { return statistics_.there<double>(); }

Status DeviceBatch::take_statistics(std::span<double> sums) const {
  if (sums.empty()) return {};
  GW_ASSIGN(const std::span<const double> found, statistics_.read<double>());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += found[i];
  clear_statistics();
  return kernels_->status();
}

void DeviceBatch::clear_statistics() const {
  const std::span<double> sums = statistics();
  kernels_->fill_zeros({reinterpret_cast<float*>(sums.data()), 2 * sums.size()});
}

}  // namespace gradwire
