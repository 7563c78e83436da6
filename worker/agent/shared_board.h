#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "rendezvous/wire/change.h"

namespace dtrun::agent {

/// A ChangeBoard in memory that other processes can map, for reading only.
class SharedBoard {
public:
    /// Errc: internal
    Result<void> open();
    SharedBoard() = default;
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;
    ~SharedBoard();

    bool is_open() const { return board_ != nullptr; }
    int fd() const { return file_.get(); }
    void write(const Change& change) {
        if (board_ != nullptr) board_->write(change);
    }

private:
    Fd file_;
    ChangeBoard* board_ = nullptr;
};

}  // namespace dtrun::agent
