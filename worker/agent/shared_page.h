#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "rendezvous/wire/change.h"

namespace dtrun::agent {

/// A ChangePage in memory that other processes can map, for reading only.
class SharedPage {
public:
    /// Errc: internal
    Result<void> open();
    SharedPage() = default;
    SharedPage(const SharedPage&) = delete;
    SharedPage& operator=(const SharedPage&) = delete;
    ~SharedPage();

    bool is_open() const { return page_ != nullptr; }
    int fd() const { return file_.get(); }
    void write(const Change& change) {
        if (page_ != nullptr) page_->write(change);
    }

private:
    Fd file_;
    ChangePage* page_ = nullptr;
};

}  // namespace dtrun::agent
