#include "worker/stores/torch_operation.h"

#include "rendezvous/wire/msgpack.h"
#include "worker/stores/tcp_store_names.h"

#include <algorithm>
#include <string>
#include <vector>

namespace dtrun::stores {
namespace {

constexpr std::uint64_t kPageKeys = 100'000;
constexpr std::uint64_t kPopHeldMs = 300'000;

// Replies of one byte.
constexpr char kReady = 0, kNotReady = 1;
constexpr char kStopWaiting = 0;

/// Of the results in a reply.
PackReader results_of(const StoreReply& reply) {
    PackReader in(reply.results);
    in.array();
    return in;
}

/// Has one question, which is answered at once.
class Once final : public TorchOperation {
public:
    explicit Once(const Parts& parts) : TorchOperation(parts) {}
    Next next() override {
        switch (request().op) {
            case TorchOp::add:
                query(Op::add).delta = request().number;
                break;
            case TorchOp::check:
                parts_.query.begin(Op::check, parts_.input);
                break;
            case TorchOp::erase:
                // Who deletes the key of a barrier lets it begin anew.
                if (parts_.input.dialect() == TorchDialect::modern)
                    parts_.aside.ask(parts_.query.begin(Op::erase, StoreQuery::kBarriers, field(0)),
                                     0);
                query(Op::erase);
                break;
            case TorchOp::length:
                query(Op::length);
                break;
            default:
                query(Op::get);
        }
        return Next::ask;
    }
    Result<bool> take(const StoreReply& reply) override {
        const bool ok = reply.status == Status::ok;
        PackReader in = results_of(reply);
        switch (request().op) {
            case TorchOp::add:
                if (!ok)
                    return fail(Errc::invalid_input, "add to {}, which is no number",
                                shown_torch_key(field(0)));
                out().put<std::int64_t>(in.integer());
                break;
            case TorchOp::check:
                out().put(in.boolean() ? kReady : kNotReady);
                break;
            case TorchOp::erase:
                out().put<std::int64_t>(in.boolean());
                break;
            case TorchOp::length:
                out().put<std::int64_t>(ok ? in.integer() : 0);
                break;
            default:
                out().put_bytes(ok ? in.bytes() : std::string_view());
        }
        return true;
    }
};

class Wait final : public TorchOperation {
public:
    explicit Wait(const Parts& parts) : TorchOperation(parts), keys_(request().fields.size()) {
        if (keys_ > 0) key_ = field(0);
        for (std::size_t i = 0; i < keys_; ++i)
            if (const auto rank = torch_init_rank(field(i)))
                rank_ = std::max(rank_.value_or(0), *rank);
    }
    Next next() override {
        parts_.query.begin(Op::wait, parts_.input).timeout_ms = kForeverMs;
        return Next::ask_wait;
    }
    Result<bool> take(const StoreReply&) override {
        out().put(kStopWaiting);
        return true;
    }
    bool can_be_cancelled() const override { return true; }
    TorchWaiting waiting() const override {
        return {.key = key_, .keys = keys_, .for_rank = rank_};
    }

private:
    const std::size_t keys_;
    std::string key_;
    std::optional<std::uint32_t> rank_;
};

/// The last client lets the others go, who wait for a key that torch's clients do not know.
class Barrier final : public TorchOperation {
public:
    explicit Barrier(const Parts& parts)
        : TorchOperation(parts), key_(field(0)), size_(request().number) {}
    Next next() override {
        if (!entered_) {
            parts_.query.begin(Op::add, StoreQuery::kKeys, key_).delta = 1;
            return Next::ask;
        }
        if (is_last_) {
            parts_.query.begin(Op::set, StoreQuery::kBarriers, key_).values.push_back("1");
            parts_.aside.ask(parts_.query.request(), 0);
            out().put(kStopWaiting);
            return Next::done;
        }
        parts_.query.begin(Op::wait, StoreQuery::kBarriers, key_).timeout_ms = kForeverMs;
        return Next::ask_wait;
    }
    Result<bool> take(const StoreReply& reply) override {
        if (entered_) {
            out().put(kStopWaiting);
            return true;
        }
        if (reply.status != Status::ok)
            return fail(Errc::invalid_input, "barrier {}: the key has a value that is no number",
                        shown_torch_key(key_));
        PackReader in = results_of(reply);
        entered_ = true;
        is_last_ = in.integer() >= size_;
        return false;
    }
    bool can_be_cancelled() const override { return true; }
    TorchWaiting waiting() const override { return {.key = key_, .barrier = true}; }

private:
    const std::string key_;
    const std::int64_t size_;  ///< clients that it takes
    bool entered_ = false;
    bool is_last_ = false;  ///< if entered
};

/// A blocking pop is a WAIT and then this; another client may have taken the item in between: this
/// one then waits for the next, as its caller wanted to.
class Pop final : public TorchOperation {
public:
    Pop(const Parts& parts, bool waited_for_it)
        : TorchOperation(parts), waited_for_it_(waited_for_it) {}
    Next next() override {
        query(Op::pop).timeout_ms = waited_for_it_ ? kPopHeldMs : 0;
        return waited_for_it_ ? Next::ask_wait : Next::ask;
    }
    Result<bool> take(const StoreReply& reply) override {
        const bool ok = reply.status == Status::ok;
        // Clients only ask whether the length before that was 0.
        out().put<std::int64_t>(ok);
        PackReader in = results_of(reply);
        if (ok) out().put_bytes(in.bytes());
        return true;
    }
    TorchWaiting waiting() const override { return {.key = field(0), .pop = true}; }

private:
    const bool waited_for_it_;
};

/// Nothing expected means that the key is missing, or empty: the store compares with one of these at
/// a time.
class CompareSet final : public TorchOperation {
public:
    explicit CompareSet(const Parts& parts) : TorchOperation(parts) {}
    Next next() override {
        StoreRequest& asked = query(Op::compare_set);
        if (!field(1).empty() || is_there_) asked.expected = field(1);
        asked.values.push_back(field(2));
        return Next::ask;
    }
    Result<bool> take(const StoreReply& reply) override {
        if (reply.status == Status::wrong_type)
            return fail(Errc::invalid_input, "compare_set of {}, which is a queue",
                        shown_torch_key(field(0)));
        PackReader in = results_of(reply);
        const bool was_set = in.boolean();
        const bool missing = in.nil();
        const std::string_view now = missing ? std::string_view() : in.bytes();
        if (!was_set && field(1).empty() && now.empty()) {
            is_there_ = !missing;
            return false;
        }
        out().put_bytes(was_set ? field(2) : missing ? field(1) : now);
        return true;
    }

private:
    bool is_there_ = false;  ///< the key has been found, with an empty value
};

/// All values at once; where one is missing, or they are too many for one reply, one after the other.
class MultiGet final : public TorchOperation {
public:
    explicit MultiGet(const Parts& parts) : TorchOperation(parts) {}
    Next next() override {
        if (next_key_ == request().fields.size()) return Next::done;
        if (one_by_one_)
            parts_.query.begin(Op::get, StoreQuery::kKeys, field(next_key_));
        else
            parts_.query.begin(Op::multi_get, parts_.input);
        return Next::ask;
    }
    Result<bool> take(const StoreReply& reply) override {
        const bool ok = reply.status == Status::ok;
        PackReader in = results_of(reply);
        if (one_by_one_) {
            out().put_bytes(ok ? in.bytes() : std::string_view());
            ++next_key_;
            return false;
        }
        one_by_one_ = !ok;
        if (!ok) return false;
        for (std::uint32_t left = in.array(); left > 0; --left) out().put_bytes(in.bytes());
        return true;
    }
    bool can_be_refused() const override { return true; }

private:
    bool one_by_one_ = false;
    std::size_t next_key_ = 0;  ///< if one_by_one_
};

/// Goes through all keys of torch's, page by page, and tells their number, and if asked to themselves.
class List final : public TorchOperation {
public:
    List(const Parts& parts, bool with_keys) : TorchOperation(parts), with_keys_(with_keys) {}
    Next next() override {
        StoreRequest& asked = parts_.query.begin(Op::list);
        asked.keys.push_back(StoreQuery::kKeys);
        asked.after = last_;
        asked.number = kPageKeys;
        return Next::ask;
    }
    Result<bool> take(const StoreReply& reply) override {
        PackReader in = results_of(reply);
        const std::uint32_t page = in.array();
        count_ += page;
        if (with_keys_) keys_.reserve(keys_.size() + page);
        for (std::uint32_t left = page; left > 0; --left) {
            const std::string_view key = in.bytes();
            if (with_keys_) keys_.emplace_back(key.substr(StoreQuery::kKeys.size()));
            if (left == 1) last_ = key;
        }
        if (in.boolean() && page > 0) return false;
        out().put(count_);
        for (const std::string& key : keys_) out().put_bytes(key);
        return true;
    }

private:
    const bool with_keys_;
    std::int64_t count_ = 0;
    std::vector<std::string> keys_;  ///< as torch knows them
    std::string last_;               ///< as the store knows it
};

}  // namespace

StoreRequest& StoreQuery::begin(Op op) {
    request_.op = op;
    request_.keys.clear();
    request_.values.clear();
    request_.expected.reset();
    request_.timeout_ms = 0;
    return request_;
}

StoreRequest& StoreQuery::begin(Op op, std::string_view prefix, std::string_view key) {
    begin(op);
    keys_.assign(prefix);
    keys_ += key;
    request_.keys.push_back(keys_);
    return request_;
}

StoreRequest& StoreQuery::begin(Op op, const TcpStoreInput& input) {
    begin(op);
    const std::size_t stride = adds_something(op) ? 2 : 1;
    const auto& fields = input.request().fields;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < fields.size(); i += stride) bytes += kKeys.size() + fields[i].bytes;
    keys_.clear();
    keys_.reserve(bytes);  // so that the views stay valid
    for (std::size_t i = 0; i < fields.size(); i += stride) {
        const std::size_t at = keys_.size();
        keys_ += kKeys;
        keys_ += input.field(i);
        request_.keys.push_back(std::string_view(keys_).substr(at));
        if (stride == 2) request_.values.push_back(input.field(i + 1));
    }
    return request_;
}

StoreRequest& TorchOperation::query(Op op) {
    return parts_.query.begin(op, StoreQuery::kKeys, field(0));
}

std::unique_ptr<TorchOperation> TorchOperation::make(const Parts& parts, bool waited_for_it) {
    switch (parts.input.request().op) {
        case TorchOp::get:
        case TorchOp::add:
        case TorchOp::check:
        case TorchOp::erase:
        case TorchOp::length:
            return std::make_unique<Once>(parts);
        case TorchOp::wait:
            return std::make_unique<Wait>(parts);
        case TorchOp::barrier:
            return std::make_unique<Barrier>(parts);
        case TorchOp::pop:
            return std::make_unique<Pop>(parts, waited_for_it);
        case TorchOp::compare_set:
            return std::make_unique<CompareSet>(parts);
        case TorchOp::multi_get:
            return std::make_unique<MultiGet>(parts);
        case TorchOp::count:
            return std::make_unique<List>(parts, false);
        case TorchOp::list:
            return std::make_unique<List>(parts, true);
        default:
            return nullptr;  // has no reply, or one without the store
    }
}

}  // namespace dtrun::stores
