#include "lab/rank/gpu/gpu_learner.h"

#include "lab/rank/gpu/gpu_memory.h"
#include "lab/rank/network.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <optional>

namespace dtrun::lab::rank {

namespace {

using Kind = LayerShape::Kind;

/// Images are tested that many at a time, or as many as are learnt from.
constexpr std::size_t kTestBatch = 256;
/// Tensors begin at a multiple of so many values, on a boundary of 256 bytes.
constexpr std::size_t kTensorBoundary = 64;

/// Images in memory of the GPU.
struct GpuImages {
    GpuArray<std::uint8_t> pixels;
    GpuArray<std::uint8_t> labels;
};

/// A tensor's place among the values of all, which lie one behind the other.
struct TensorPlace {
    std::size_t begin = 0;
    std::size_t count = 0;
};

/// A layer and its tensors; only those with inputs() have some.
struct GpuLayer {
    LayerShape shape;
    TensorPlace weights;
    TensorPlace biases;
};

Squares squares_of(const LayerShape& shape, std::size_t images) {
    return {images, shape.in.height, shape.in.width, shape.in.channels, shape.kernel};
}

class GpuLearner final : public Learner {
public:
    GpuLearner(const GpuPlace& place, const LearnerSpec& spec)
        : place_(place),
          kernels_(*place.kernels),
          data_(spec.data),
          batch_(std::max(spec.batch, kTestBatch)) {
        for (const LayerShape& shape : layers_of(spec.model)) add_layer(shape);
        plan_memory();
    }
    /// Memory is not given back while kernels use it.
    ~GpuLearner() override { static_cast<void>(place_.stream.wait()); }
    GpuLearner(const GpuLearner&) = delete;
    GpuLearner& operator=(const GpuLearner&) = delete;

    /// Allocates all memory, and copies the images and the first weights.
    Result<void> prepare(const LearnerSpec& spec) {
        if (auto done = memory_.allocate(place_.device); !done) return done;
        for (const TensorPlace& tensor : tensors_) {
            weights_.emplace_back(memory_.at(values_) + tensor.begin, tensor.count);
            gradients_.emplace_back(memory_.at(slopes_) + tensor.begin, tensor.count);
        }
        for (const auto& [images, on_gpu] :
             {std::pair(&data_.training, &training_), std::pair(&data_.test, &test_)}) {
            put(on_gpu->pixels, images->pixels.data());
            put(on_gpu->labels, images->labels.data());
        }
        Network network(spec.model, spec.seed, 1);  // which has the first weights
        std::vector<float> first(values_.count);
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            std::ranges::copy(network.tensors()[i]->values,
                              first.begin() + static_cast<std::ptrdiff_t>(tensors_[i].begin));
        put(values_, first.data());
        const std::vector<float> zeros(values_.count);
        put(slopes_, zeros.data());  // what lies between tensors, too
        put(velocities_, zeros.data());
        const float one = 1;
        put(one_, &one);
        put(losses_, no_losses_.data());
        return finish();
    }

    std::span<const std::span<float>> weights() const override { return weights_; }
    std::span<const std::span<float>> gradients() const override { return gradients_; }

    Result<void> learn(std::span<const std::uint32_t> picks, float scale) override {
        assert(picks.size() <= batch_);
        if (!picks_on_host_.empty())  // those of the last call may still be on their way
            if (auto done = finish(); !done) return done;
        picks_on_host_.assign(picks.begin(), picks.end());
        put({picks_.offset, picks.size()}, picks_on_host_.data());
        run(kernels_.to_floats(at(training_.pixels), at(picks_), picks.size(), kImageBytes,
                               at(layer_values_.front()), stream()));
        forward(picks.size());
        run(kernels_.lose(at(layer_values_.back()), at(training_.labels), at(picks_), picks.size(),
                          scale, at(layer_slopes_.back()), at(losses_), stream()));
        for (std::size_t i = layers_.size(); i-- > 0;) backward(i, picks.size());
        return begun("learning");
    }

    Result<void> descend(const Descent& descent) override {
        run(kernels_.descend(descent.rate, descent.momentum, at(slopes_), at(velocities_),
                             at(values_), values_.count, stream()));
        return begun("descending");
    }

    Result<void> finish() override {
        if (auto done = place_.stream.wait(); !done) return done;
        picks_on_host_.clear();
        return begun("copying");
    }

    Result<double> take_loss() override {
        std::vector<double> losses(losses_.count);
        get(losses_, losses.data());
        put(losses_, no_losses_.data());
        if (auto done = finish(); !done) return std::unexpected(done.error());
        return std::accumulate(losses.begin(), losses.end(), 0.0);
    }

    Result<std::size_t> test(std::size_t first, std::size_t count) override {
        std::vector<std::uint32_t> right(right_.count);
        put(right_, right.data());
        for (std::size_t done = 0; done < count;) {
            const std::size_t now = std::min(batch_, count - done);
            run(kernels_.to_floats(at(test_.pixels) + (first + done) * kImageBytes, nullptr, now,
                                   kImageBytes, at(layer_values_.front()), stream()));
            forward(now);
            run(kernels_.count_right(at(layer_values_.back()), at(test_.labels) + first + done, now,
                                     at(right_), stream()));
            done += now;
        }
        if (auto done = finish(); !done) return std::unexpected(done.error());
        get(right_, right.data());
        if (auto done = finish(); !done) return std::unexpected(done.error());
        return std::accumulate(right.begin(), right.end(), std::size_t{0});
    }

private:
    TensorPlace add_tensor(std::size_t count) {
        const TensorPlace tensor{tensor_values_, count};
        tensor_values_ += (count + kTensorBoundary - 1) / kTensorBoundary * kTensorBoundary;
        tensors_.push_back(tensor);
        return tensor;
    }

    void add_layer(const LayerShape& shape) {
        GpuLayer& layer = layers_.emplace_back();
        layer.shape = shape;
        if (shape.inputs() == 0) return;
        layer.weights = add_tensor(shape.inputs() * shape.channels);
        layer.biases = add_tensor(shape.channels);
    }

    void plan_memory() {
        for (const auto& [images, on_gpu] :
             {std::pair(&data_.training, &training_), std::pair(&data_.test, &test_)}) {
            on_gpu->pixels = memory_.plan<std::uint8_t>(images->pixels.size());
            on_gpu->labels = memory_.plan<std::uint8_t>(images->labels.size());
        }
        for (GpuArray<float>* const array : {&values_, &slopes_, &velocities_})
            *array = memory_.plan<float>(tensor_values_);
        std::size_t rows = 0;  // of the largest convolution
        for (const GpuLayer& layer : layers_) {
            for (auto* const arrays : {&layer_values_, &layer_slopes_})
                arrays->push_back(memory_.plan<float>(batch_ * layer.shape.in.size()));
            if (layer.shape.kind == Kind::convolution)
                rows = std::max(rows, layer.shape.positions() * layer.shape.inputs());
        }
        for (auto* const arrays : {&layer_values_, &layer_slopes_})
            arrays->push_back(memory_.plan<float>(batch_ * layers_.back().shape.out().size()));
        rows_ = memory_.plan<float>(batch_ * rows);
        parts_ = memory_.plan<float>(TrainKernels::kPartsFloats);
        one_ = memory_.plan<float>(1);
        picks_ = memory_.plan<std::uint32_t>(batch_);
        right_ = memory_.plan<std::uint32_t>(batch_);
        losses_ = memory_.plan<double>(batch_);
        no_losses_.resize(batch_);
    }

    void forward(std::size_t images) {
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            const LayerShape& shape = layers_[i].shape;
            const float* const in = at(layer_values_[i]);
            float* const out = at(layer_values_[i + 1]);
            if (shape.kind == Kind::pool) {
                run(kernels_.pool(squares_of(shape, images), in, out, stream()));
                continue;
            }
            multiply({.a = by_rows(rows_of(shape, in, images), shape.inputs()),
                      .b = by_rows(weights_of(layers_[i]), shape.channels),
                      .bias = at(values_) + layers_[i].biases.begin,
                      .rectified = shape.rectified,
                      .out = out,
                      .rows = images * shape.positions(),
                      .inner = shape.inputs(),
                      .columns = shape.channels});
        }
    }

    /// Sets the slopes of a layer's tensors, and of the values before it unless it is the first.
    void backward(std::size_t number, std::size_t images) {
        const GpuLayer& layer = layers_[number];
        const LayerShape& shape = layer.shape;
        const float* const in = at(layer_values_[number]);
        float* const out_slopes = at(layer_slopes_[number + 1]);
        float* const in_slopes = at(layer_slopes_[number]);
        if (shape.kind == Kind::pool) {
            run(kernels_.pool_back(squares_of(shape, images), in, out_slopes, in_slopes, stream()));
            return;
        }
        const std::size_t neurons = images * shape.positions();  // of each channel
        if (shape.rectified)
            run(kernels_.rectify_back(at(layer_values_[number + 1]), out_slopes,
                                      neurons * shape.channels, stream()));
        multiply({.a = transposed(rows_of(shape, in, images), shape.inputs()),
                  .b = by_rows(out_slopes, shape.channels),
                  .out = at(slopes_) + layer.weights.begin,
                  .rows = shape.inputs(),
                  .inner = neurons,
                  .columns = shape.channels});
        // The sum of all rows is their product with a row of ones.
        multiply({.a = {at(one_), 0, 0},
                  .b = by_rows(out_slopes, shape.channels),
                  .out = at(slopes_) + layer.biases.begin,
                  .rows = 1,
                  .inner = neurons,
                  .columns = shape.channels});
        if (number == 0) return;
        const bool in_squares = shape.kind == Kind::convolution;
        multiply({.a = by_rows(out_slopes, shape.channels),
                  .b = transposed(weights_of(layer), shape.channels),
                  .out = in_squares ? at(rows_) : in_slopes,
                  .rows = neurons,
                  .inner = shape.channels,
                  .columns = shape.inputs()});
        if (in_squares)
            run(kernels_.rows_to_squares(squares_of(shape, images), at(rows_), in_slopes,
                                         stream()));
    }

    /// What the neurons of a channel see, a row for each of them.
    const float* rows_of(const LayerShape& shape, const float* in, std::size_t images) {
        if (shape.kind != Kind::convolution) return in;
        run(kernels_.squares_to_rows(squares_of(shape, images), in, at(rows_), stream()));
        return at(rows_);
    }

    const float* weights_of(const GpuLayer& layer) const {
        return at(values_) + layer.weights.begin;
    }

    static GpuMatrix by_rows(const float* data, std::size_t columns) { return {data, columns, 1}; }
    static GpuMatrix transposed(const float* data, std::size_t rows) { return {data, 1, rows}; }

    void multiply(const Product& product) { run(kernels_.multiply(product, at(parts_), stream())); }

    template <class T>
    T* at(const GpuArray<T>& array) const {
        return memory_.at(array);
    }
    void* stream() const { return place_.stream.get(); }

    /// Begins to copy an array; what it is copied from or to stays until finish().
    template <class T>
    void put(const GpuArray<T>& array, const T* from) {
        keep(place_.stream.copy(at(array), from, array.count * sizeof(T)));
    }
    template <class T>
    void get(const GpuArray<T>& array, T* to) {
        keep(place_.stream.copy(to, at(array), array.count * sizeof(T)));
    }

    /// Keeps the first failure for begun(): nothing can be made of what follows it.
    void run(int code) {
        if (code != 0) keep(fail(Errc::internal, "{}", kernels_.error_text(code)));
    }
    void keep(const Result<void>& done) {
        if (!done && !failure_) failure_ = done.error();
    }
    Result<void> begun(const char* what) const {
        if (failure_) return fail(*failure_, "{} on the GPU", what);
        return {};
    }

    const GpuPlace& place_;
    const TrainKernels& kernels_;
    const DataSet& data_;
    const std::size_t batch_;

    std::vector<GpuLayer> layers_;
    std::vector<TensorPlace> tensors_;
    std::size_t tensor_values_ = 0;  ///< of all tensors, with what lies between them
    std::vector<std::span<float>> weights_, gradients_;

    GpuMemory memory_;
    GpuImages training_, test_;
    GpuArray<float> values_, slopes_, velocities_;  ///< of all tensors
    /// layer_values_[0]: pixels; layer_values_[i + 1]: what layer i gives
    std::vector<GpuArray<float>> layer_values_, layer_slopes_;
    GpuArray<float> rows_, parts_, one_;
    GpuArray<std::uint32_t> picks_, right_;
    GpuArray<double> losses_;  ///< by place in a batch, summed since take_loss()

    std::vector<std::uint32_t> picks_on_host_;
    std::vector<double> no_losses_;
    std::optional<Error> failure_;
};

}  // namespace

MakeLearner learner_on_gpu(const GpuPlace& place) {
    return [&place](const LearnerSpec& spec) -> Result<std::unique_ptr<Learner>> {
        auto learner = std::make_unique<GpuLearner>(place, spec);
        if (auto done = learner->prepare(spec); !done)
            return fail(done.error(), "a network on the GPU");
        return learner;
    };
}

}  // namespace dtrun::lab::rank
