#include "collectives/backends/nccl/compressed.h"

#include "collectives/algorithms/segments.h"
#include "collectives/backends/shared_library.h"
#include "collectives/codec/codec.h"
#include "collectives/codec/format_table.h"
#include "collectives/codec/numbers.h"

#include <dlfcn.h>
#include <algorithm>
#include <filesystem>

namespace dtrun::collectives::nccl {
namespace {

constexpr const char* kName = "compressed allreduce";
/// The alignment of the GPU's allocations; the fastest copies need less.
constexpr std::size_t kAlignment = 256;

constexpr std::size_t divide_up(std::size_t n, std::size_t by) {
    return (n + by - 1) / by;
}

constexpr std::size_t aligned(std::size_t bytes) {
    return divide_up(bytes, kAlignment) * kAlignment;
}

}  // namespace

NcclGroup::Compressed::Compressed(NcclGroup& group, std::span<const Segment> segments,
                                  Reduce reduce, const Compression& compression, std::uint64_t call)
    : group_(group),
      rank_(group.rank_),
      size_(group.size_),
      divisor_(reduce == Reduce::average ? group.size_ : 1),
      compression_(compression),
      call_(call),
      chunks_(group.size_) {
    std::size_t before = 0;
    for (const Segment& segment : segments) {
        if (segment.count == 0) continue;
        const bool apart = row_of(compression.format).is_scaled();
        const std::size_t gap = apart ? gap_between(count_, before, segment.count) : 0;
        if (gap > 0) add({nullptr, nullptr, gap});
        add(segment);
        before = segment.count;
    }
    blocks_ = divide_up(count_, kBlock);
    const std::size_t longest = divide_up(blocks_, size_);
    const std::size_t at_once = std::max<std::size_t>(group.compressed_values_ / kBlock / size_, 1);
    rounds_ = divide_up(longest, at_once);
    chunk_ = rounds_ == 0 ? 0 : divide_up(longest, rounds_) * kBlock;
    stride_ = encoded_bytes(compression_.format, chunk_);
}

void NcclGroup::Compressed::add(const Segment& segment) {
    segments_.push_back(segment);
    ends_.push_back(count_ += segment.count);
}

/// The same on all ranks, though some may keep no errors.
std::size_t NcclGroup::Compressed::workspace_bytes() const {
    const std::size_t spread = segments_.size() > 1 ? aligned(size_ * chunk_ * sizeof(float)) : 0;
    return 3 * aligned(size_ * stride_) + 2 * spread;
}

Result<void> NcclGroup::Compressed::enqueue() {
    auto* at = static_cast<std::byte*>(group_.workspace_);
    const std::size_t boxes = aligned(size_ * stride_);
    to_owners_ = at;
    from_peers_ = at + boxes;
    sums_ = at + 2 * boxes;
    values_ = reinterpret_cast<float*>(at + 3 * boxes);
    errors_ = values_ + aligned(size_ * chunk_ * sizeof(float)) / sizeof(float);
    for (std::size_t round = 0; round < rounds_; ++round)
        if (auto ok = do_round(round); !ok) return ok;
    return {};
}

Result<void> NcclGroup::Compressed::do_round(std::size_t round) {
    spread_.clear();
    for (std::uint32_t owner = 0; owner < size_; ++owner) cut(owner, round);
    auto ok = gather();
    if (ok) ok = encode_values();
    if (ok) ok = send_values();
    if (ok) ok = combine();
    if (ok) ok = gather_sums();
    if (ok) ok = decode_sums();
    if (ok) ok = scatter();
    return ok;
}

/// Where what an owner has begins, as on the CPU.
std::size_t NcclGroup::Compressed::begin_of(std::size_t owner) const {
    const std::size_t block = blocks_ / size_ * owner + std::min(owner, blocks_ % size_);
    return std::min(block * kBlock, count_);
}

std::vector<Segment> NcclGroup::Compressed::segments_of(std::size_t at, std::size_t count) const {
    std::vector<Segment> found;
    auto i =
        static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    for (std::size_t left = count; left > 0; ++i) {
        const Segment& one = segments_[i];
        const std::size_t offset = at - (ends_[i] - one.count);
        const std::size_t here = std::min(left, one.count - offset);
        if (one.in == nullptr)
            found.push_back({nullptr, nullptr, here});
        else
            found.push_back({one.in + offset, one.out + offset, here,
                             one.error == nullptr ? nullptr : one.error + offset});
        at += here;
        left -= here;
    }
    return found;
}

/// Finds a rank's chunk. Within one segment it is used in place, errors too. Across several segments
/// it is gathered, since small segments share blocks. No chunk is a gap alone: chunks begin with blocks.
void NcclGroup::Compressed::cut(std::uint32_t owner, std::size_t round) {
    OwnersChunk& chunk = chunks_[owner];
    const std::size_t end = begin_of(owner + 1);
    chunk = {};
    chunk.at = std::min(begin_of(owner) + round * chunk_, end);
    chunk.count = std::min(chunk_, end - chunk.at);
    if (chunk.count == 0) return;
    const std::vector<Segment> parts = segments_of(chunk.at, chunk.count);
    if (parts.size() == 1) {
        const Segment& only = parts.front();
        chunk.values = only.in;
        chunk.place = only.out;
        chunk.before = chunk.error = only.error;
        return;
    }
    std::size_t begin = owner * chunk_;
    chunk.values = chunk.place = values_ + begin;
    for (const Segment& part : parts) {
        if (part.error != nullptr) chunk.error = errors_ + owner * chunk_;
        spread_.push_back({part, begin});
        begin += part.count;
    }
}

Result<void> NcclGroup::Compressed::gather() {
    if (spread_.empty()) return {};
    return launched(codecs().gather(spread_.data(), spread_.size(), values_, group_.stream_));
}

std::uint32_t NcclGroup::Compressed::neighbours(std::uint32_t first, std::uint32_t end) const {
    std::uint32_t next = first + 1;
    for (; next < end; ++next) {
        const OwnersChunk& before = chunks_[next - 1];
        const OwnersChunk& one = chunks_[next];
        const auto follows = [&before](const float* a, const float* b) {
            return a == nullptr ? b == nullptr : b == a + before.count;
        };
        if (one.count == 0 || before.count != chunk_ || !follows(before.values, one.values) ||
            !follows(before.place, one.place) || !follows(before.before, one.before) ||
            !follows(before.error, one.error))
            break;
    }
    return next - first;
}

/// Values of `number` chunks, of which all but the last are whole.
std::size_t NcclGroup::Compressed::values_of(std::uint32_t first, std::uint32_t number) const {
    return (number - 1) * chunk_ + chunks_[first + number - 1].count;
}

/// Skips this rank's own chunk, whose errors are those of the sum.
Result<void> NcclGroup::Compressed::encode_values() {
    for (std::uint32_t owner = 0; owner < size_;) {
        const OwnersChunk& first = chunks_[owner];
        if (owner == rank_ || first.count == 0) {
            ++owner;
            continue;
        }
        const std::uint32_t number = neighbours(owner, owner < rank_ ? rank_ : size_);
        auto ok = launched(codecs().encode(
            compression_.format, compression_.rounding, seed(first.at), first.values, first.before,
            values_of(owner, number), box(to_owners_, owner), first.error, group_.stream_));
        if (!ok) return ok;
        owner += number;
    }
    return {};
}

Result<void> NcclGroup::Compressed::send_values() {
    const NcclFunctions& nccl = group_.library_->nccl;
    return group_.put(kName, [&](NcclComm* comm, GpuStream* stream) {
        return group_.grouped([&] {
            const std::size_t mine = encoded(chunks_[rank_]);
            for (std::uint32_t step = 1; step < size_; ++step) {
                const std::uint32_t to = (rank_ + step) % size_;
                const std::uint32_t from = (rank_ + size_ - step) % size_;
                NcclResult result = NcclResult::success;
                if (const std::size_t bytes = encoded(chunks_[to]); bytes > 0)
                    result = nccl.send(box(to_owners_, to), bytes, NcclType::u8,
                                       static_cast<int>(to), comm, stream);
                if (mine > 0 && !is_error(result))
                    result = nccl.recv(box(from_peers_, from), mine, NcclType::u8,
                                       static_cast<int>(from), comm, stream);
                if (is_error(result)) return result;
            }
            return NcclResult::success;
        });
    });
}

Result<void> NcclGroup::Compressed::combine() {
    const OwnersChunk& mine = chunks_[rank_];
    if (mine.count == 0) return {};
    const CudaChunk chunk{from_peers_, stride_,     size_,    rank_,
                          mine.values, mine.before, divisor_, mine.count};
    return launched(codecs().combine(compression_.format, compression_.rounding, seed(mine.at),
                                     chunk, box(sums_, rank_), mine.error, nullptr,
                                     group_.stream_));
}

/// Gathers parts of one length, though some chunks are a block shorter: NCCL is faster at that.
Result<void> NcclGroup::Compressed::gather_sums() {
    return group_.put(kName, [&](NcclComm* comm, GpuStream* stream) {
        return group_.library_->nccl.all_gather(box(sums_, rank_), sums_, stride_, NcclType::u8,
                                                comm, stream);
    });
}

/// Decodes all chunks: the owner, too, decodes what it has sent.
Result<void> NcclGroup::Compressed::decode_sums() {
    for (std::uint32_t owner = 0; owner < size_;) {
        const OwnersChunk& first = chunks_[owner];
        if (first.count == 0) {
            ++owner;
            continue;
        }
        const std::uint32_t number = neighbours(owner, size_);
        auto ok = launched(codecs().decode(compression_.format, box(sums_, owner),
                                           values_of(owner, number), first.place, group_.stream_));
        if (!ok) return ok;
        owner += number;
    }
    return {};
}

Result<void> NcclGroup::Compressed::scatter() {
    if (spread_.empty()) return {};
    return launched(
        codecs().scatter(spread_.data(), spread_.size(), values_, errors_, group_.stream_));
}

/// A seed that differs for every call, rank and place.
std::uint64_t NcclGroup::Compressed::seed(std::size_t at) const {
    return mix64(mix64(call_) ^ rank_) ^ at;
}

std::size_t NcclGroup::Compressed::encoded(const Chunk& chunk) const {
    return encoded_bytes(compression_.format, chunk.count);
}

Result<void> NcclGroup::Compressed::launched(int code) const {
    if (code == kGpuSuccess) return {};
    return group_.broken(
        {Errc::internal, fmt::format("nccl: {}: {}", kName, codecs().error_text(code))});
}

// ---- the operation ------------------------------------------------------------------------------

Result<void> NcclGroup::allreduce_compressed(std::span<const Segment> segments, Reduce reduce,
                                             const Compression& compression, std::uint64_t call) {
    if (reduce != Reduce::sum && reduce != Reduce::average)
        return fail(Errc::invalid_input, "only sum and average can be compressed, not {}",
                    name_of(reduce));
    std::size_t count = 0;
    for (const Segment& segment : segments) {
        count += segment.count;
        auto ok = check(kName, segment.in, segment.count);
        if (ok && segment.out != segment.in) ok = check(kName, segment.out, segment.count);
        if (ok && segment.error != nullptr) ok = check(kName, segment.error, segment.count);
        if (!ok) return ok;
    }
    if (count == 0) return state();
    if (size_ == 1) return copy_segments(segments);
    Compressed compressed(*this, segments, reduce, compression, call);
    if (auto ok = agree_on_codecs(compressed.workspace_bytes()); !ok)
        return fail(ok.error(), "nccl: {}", kName);
    return perform(kName, [&] { return compressed.enqueue(); });
}

/// A single rank's result is its input.
Result<void> NcclGroup::copy_segments(std::span<const Segment> segments) {
    return perform(kName, [&]() -> Result<void> {
        for (const Segment& one : segments) {
            if (one.count == 0 || one.in == one.out) continue;
            auto ok = copy(kName, one.out, one.in, one.count * sizeof(float));
            if (!ok) return ok;
        }
        return {};
    });
}

/// Allocates memory for a compressed allreduce. It is kept, since freeing it waits until the GPU
/// has done all its work.
/// Errc: invalid_input (no memory, and nothing is broken)
Result<void> NcclGroup::reserve(std::size_t bytes) {
    if (bytes <= workspace_bytes_) return {};
    const GpuFunctions& gpu = library_->gpu;
    // Messages may be under way, and abort() could not end a wait inside the runtime library.
    auto ok = wait(kName, [&] { return gpu.stream_query(stream_); });
    if (!ok) return ok;
    if (workspace_ != nullptr) gpu.free(workspace_);
    workspace_ = nullptr;
    workspace_bytes_ = 0;
    if (const int code = gpu.malloc(&workspace_, bytes); code != kGpuSuccess) {
        workspace_ = nullptr;
        gpu.get_last_error();
        return fail(Errc::invalid_input, "{} MiB of GPU {}'s memory to compress in: {}",
                    (bytes >> 20) + 1, device_, library_->gpu_error(code));
    }
    workspace_bytes_ = bytes;
    return {};
}

// ---- what all ranks need to have ----------------------------------------------------------------

namespace {

/// The codecs of libdtrun_codec_cuda.so for the current device. Once loaded they stay.
/// \param path  "": beside the plug-in that this is part of
/// Errc: invalid_input (there is no such library, or it has nothing for this GPU)
Result<const CudaCodecs*> load_codecs(const std::string& path) {
    const std::filesystem::path file = path.empty()
                                           ? folder_of(&load_codecs) / "libdtrun_codec_cuda.so"
                                           : std::filesystem::path(path);
    std::error_code error;
    if (path.empty() && !std::filesystem::exists(file, error))
        return fail(Errc::invalid_input,
                    "this dtrun was built without a CUDA toolkit, and so without codecs for the "
                    "GPU (no {})",
                    file.string());
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return fail(Errc::invalid_input, "{}", ::dlerror());
    const auto entry =
        reinterpret_cast<const CudaCodecs* (*)()>(::dlsym(library, "dtrun_codec_cuda"));
    if (entry == nullptr)
        return fail(Errc::invalid_input, "{} has no codecs of dtrun", file.string());
    const CudaCodecs* const codecs = entry();
    if (codecs->abi != CudaCodecs::kAbi)
        return fail(Errc::invalid_input, "{} is of another version of dtrun", file.string());
    if (const int code = codecs->check(); code != 0)
        return fail(Errc::invalid_input, "the codecs do not run on this GPU: {}",
                    codecs->error_text(code));
    return codecs;
}

/// What a rank tells the others of its codecs.
struct CodecStatus {
    enum class Kind : char { ready, no_codecs, no_memory };
    Kind kind = Kind::ready;
    char why[255] = "";

    void lacks(Kind what, const std::string& text) {
        kind = what;
        text.copy(why, sizeof why - 1);
    }
};

/// The rank that says why not, this one if it is among those that lack something.
std::uint32_t who_lacks(const std::vector<CodecStatus>& all, std::uint32_t self) {
    if (all[self].kind != CodecStatus::Kind::ready) return self;
    const auto found = std::ranges::find_if(
        all, [](const CodecStatus& one) { return one.kind != CodecStatus::Kind::ready; });
    return static_cast<std::uint32_t>(found - all.begin());
}

}  // namespace

/// Asks all ranks, when something has changed: were one of them to find out by itself that it has no
/// codecs, the others would wait for it inside NCCL.
Result<void> NcclGroup::agree_on_codecs(std::size_t bytes) {
    if (!codecs_lacking_.empty()) return fail(Errc::invalid_input, "{}", codecs_lacking_);
    if (codecs_ != nullptr && bytes <= workspace_agreed_) return {};
    std::vector<CodecStatus> all(size_);
    CodecStatus& own = all[rank_];
    if (auto opened = open_codecs(); !opened) {
        own.lacks(CodecStatus::Kind::no_codecs, opened.error().message);
    } else if (auto ok = perform(kName, [&] { return reserve(bytes); }); !ok) {
        if (ok.error().code != Errc::invalid_input) return ok;
        own.lacks(CodecStatus::Kind::no_memory, ok.error().message);
    }
    if (auto ok = allgather_on_host(&own, all.data(), sizeof own); !ok) return ok;
    const std::uint32_t rank = who_lacks(all, rank_);
    if (rank == size_) {
        workspace_agreed_ = std::max(workspace_agreed_, bytes);
        return {};
    }
    std::string why = all[rank].why;
    if (rank != rank_) why = fmt::format("rank {}: {}", rank, why);
    const auto no_codecs = [](const CodecStatus& one) {
        return one.kind == CodecStatus::Kind::no_codecs;
    };
    if (std::ranges::any_of(all, no_codecs)) codecs_lacking_ = why;
    return fail(Errc::invalid_input, "{}", why);
}

Result<void> NcclGroup::open_codecs() {
    if (codecs_ != nullptr) return {};
    if (library_->rccl) return fail(Errc::invalid_input, "only on NVIDIA's GPUs");
    const GpuScope scope(library_->gpu, device_);
    const auto opened = load_codecs(codecs_path_);
    if (!opened) return std::unexpected(opened.error());
    codecs_ = *opened;
    return {};
}

}  // namespace dtrun::collectives::nccl
