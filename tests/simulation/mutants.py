#!/usr/bin/python3
"""Proves the simulation: each of these mistakes, put into dtrun's sources, is found by it within a minute
of a processor.

    ./dev simulate --mutants [NAME..]
    tests/simulation/mutants.py --check

works on a copy of the tree in build/mutants. It prints, for each, what was found, after how many runs and
seconds, and fails if one was not. With --check, which CI runs, it only looks whether each can be made: whether
the sources still have the texts that are replaced."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys

ROOT = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../..")
COPY = f"{ROOT}/build/mutants"
PROGRAM = f"{COPY}/build/bin/test_simulation"
LIMIT = 60  # seconds of a processor to find one
DAEMON, HEAD = "nothing acknowledged*", "a job of a head*"  # the tests that find them

# name: file, what stands there (once), what stands there instead; or a list of such, for what is there twice
OF_DAEMON = {
    "answers are not kept on disk": (
        "rendezvous/exchange/hub.cpp",
        "    if (journal_ != nullptr) journal_->answered(header.client, header.id, *payload);\n", ""),
    "answers are not kept at all": (
        "rendezvous/exchange/hub.cpp", "    keep_answer(header.client, header.id, payload);\n", ""),
    "late copies of requests are carried out": (
        "rendezvous/exchange/hub.cpp", "if (client.gone || (options_.reconnects && client.peer > peer)) return true;",
        "if (client.gone) return true;"),
    "two answers are kept for a client, not 64": (
        "rendezvous/exchange/hub.cpp", "kAnswersMax = 64;", "kAnswersMax = 2;"),
    "answers are forgotten one too early": (
        "rendezvous/exchange/hub.cpp", "const std::uint64_t lowest = header.id - header.behind;",
        "const std::uint64_t lowest = header.id - header.behind + 2;"),
    "answers of a client that is away are dropped at once": (
        "rendezvous/exchange/hub.cpp",
        "        if (client.moved)\n            set_away(",
        "        if (true)\n            forget_client(name);\n        else if (client.moved)\n            set_away("),
    "kept answers are not restored": (
        "rendezvous/exchange/hub.cpp",
        "    keep_answer(name, id, std::make_shared<const Bytes>(std::move(reply)));\n"
        "    set_away(name, clients_.at(name), now + kReturnLimit);\n", "    (void)name, (void)id, (void)now;\n"),
    "frames leave before their changes are on disk": (
        "rendezvous/daemon/daemon.cpp", "frame.number = db_->submitted() + 1;", "frame.number = db_->submitted();"),
    "frames leave when their changes are submitted": (
        "rendezvous/daemon/daemon.cpp", "peer.held.front().number <= db_->durable()",
        "peer.held.front().number <= db_->submitted()"),
    "membership is not saved": (
        "rendezvous/daemon/daemon.cpp", "        job->save();\n        jobs_.recount(id);\n",
        "        jobs_.recount(id);\n"),
    "commits are not synced": (
        "rendezvous/daemon/state_writer.cpp", "PRAGMA synchronous=FULL;", "PRAGMA synchronous=OFF;"),
    "a restart does not sync what it has read": (
        "rendezvous/daemon/state_writer.cpp", "commits_ = noted_commits();\n    return sync_log();\n",
        "commits_ = noted_commits();\n    return {};\n"),
    "a batch counts as durable before it is written": (
        "rendezvous/daemon/state_writer.cpp",
        "        if (!batches.empty() && !write(batches)) {",
        "        if (!batches.empty()) tell(batches.back().number);\n        if (!batches.empty() && !write(batches)) {"),
    "popped items stay on disk": (
        "rendezvous/daemon/state_db.cpp", "DELETE FROM item WHERE job=? AND key=? AND item=?",
        "DELETE FROM item WHERE job=? AND key=? AND item=? AND 0"),
    "erased values stay on disk": (
        "rendezvous/daemon/state_db.cpp",
        '        db_.run("DELETE FROM value WHERE job=? AND key=?", job_, key);\n', ""),
    "a batch that finds the disk full is dropped": (
        "rendezvous/daemon/state_writer.cpp",
        "        if (changed_.wait_until(lock, again, [this] { return stopping_; })) return false;",
        "        if (changed_.wait_until(lock, again, [this] { return stopping_; })) return false;\n"
        "        break;"),
    "writes that find the disk full are taken for done": (
        "rendezvous/daemon/state_writer.cpp", "        return result == SQLITE_DONE;\n    };", "        return true;\n    };"),
    "ends of group fences are not remembered": (
        "rendezvous/exchange/group_fences.cpp", "    remember(key, std::move(end));\n}\n\nvoid GroupFences::remember",
        "}\n\nvoid GroupFences::remember"),
    "ends of group fences are not kept on disk": (
        "rendezvous/exchange/hub.cpp", "if (journal_ != nullptr) journal_->group_ended(key, end);",
        "(void)key, (void)end;"),
    "a fence of another launcher's ranks is complete with one missing": (
        "rendezvous/exchange/group_fences.cpp", "open.parts.size() == open.ranks)", "open.parts.size() + 1 >= open.ranks)"),
    "a fence is complete with one rank missing": (
        "rendezvous/exchange/fence_table.cpp", "if (open.ranks < ranks_) return {};",
        "if (open.ranks + 1 < ranks_) return {};"),
    "members are told different reasons of a job's end": (
        "rendezvous/daemon/served_job.cpp", "    send_to_all(Stop{SIGTERM, kGraceMs, why, false, because_of});",
        "    for (const HostId host : hosts_.hosts())\n"
        "        send(host, Stop{SIGTERM, kGraceMs, why + std::to_string(std::to_underlying(host)), false, because_of});"),
    "survivors are ordered by chance": (
        "rendezvous/job/membership.cpp", "const Age age(is_new ? UINT64_MAX : hosts_[id].first_world,",
        "const Age age(is_new ? UINT64_MAX : 0,"),
    "the generation is not restored": (
        "rendezvous/daemon/served_job_saved.cpp", "hub_.restore_generation(generation(), static_cast",
        "hub_.restore_generation(generation() + 1, static_cast"),
    "a comparison always succeeds": (
        "rendezvous/exchange/store.cpp", ": request.expected && entry->value == *request.expected;",
        ": request.expected.has_value();"),
    "requests are not sent again over a new connection": (
        "worker/client/client.cpp", "    requests_.add_unanswered(first);\n", ""),
    "fences are not sent again over a new connection": (
        "worker/client/client.cpp", "    fences_.add_unfinished(first);\n", ""),
    "who gives a fence up says so once, if the connection is there": (
        "worker/client/fences.cpp", "    for (const auto& [key, frame] : given_up_) frames.push_back(frame);\n", ""),
    "a client says that it has answers which it has not": (
        "worker/client/requests.cpp", "static_cast<std::uint32_t>(call.id - lowest)", "static_cast<std::uint32_t>(lowest * 0)"),
    "a client does not notice that its daemon is silent": (
        "worker/client/keep_alive.cpp", "if (now() - heard_ > silence_max_)", "if (now() - heard_ > silence_max_ * 1'000)"),
    "a slow reader's bytes are counted twice": (
        "rendezvous/links/send_queue.cpp", "item.offset += static_cast<std::size_t>(n);",
        "item.offset += static_cast<std::size_t>(n) + (n > 65'536 ? 1 : 0);"),
    "what an owner has is nobody's when it is gone": (
        "rendezvous/exchange/hub_owners.cpp", "    store_->owner_gone(id);\n", ""),
    "an item that was acknowledged stays on disk": (
        "rendezvous/exchange/store_queues.cpp",
        "    if (journal_ != nullptr) journal_->item_popped(entry->first, request.number, revision_);\n", ""),
    "an item is given to two": (
        "rendezvous/exchange/store_queues.cpp",
        "    Item item = std::move(queue.items.front());\n    queue.items.pop_front();\n",
        "    Item item = queue.items.front();\n    if (revision_ % 8 != 0) queue.items.pop_front();\n"),
    "a condition on a revision always holds": (
        "rendezvous/exchange/store_owners.cpp",
        "return (entry != nullptr ? entry->facts.revision : 0) == condition.revision;", "return true;"),
    "revisions begin anew when a daemon does": [
        ("rendezvous/daemon/served_job.cpp", "first_revision(db_), options_.return_limit",
         "first_revision(db_) * 0, options_.return_limit"),
        ("rendezvous/exchange/store.cpp", "    revision_ = std::max(revision_, facts.revision);\n", ""),
        ("rendezvous/exchange/store_queues.cpp", "    revision_ = std::max(revision_, number);\n", "")],
}


# Not among them, as nobody could tell: next_deadline() without rejoin_until_ (the beat of a head calls tick() each time),
# release() with the processes of its host (host_ready() forgets them before anybody asks), change() or call_more()
# without is_finishing_ (each covers the other; both are here), and a well end that leaves call_until_ (change() looks
# at is_finishing_).
MEMBERSHIP = "rendezvous/job/membership"
OF_HEAD = {
    "a process that was prepared counts as there after all have started again": (
        f"{MEMBERSHIP}.cpp", "[](HostId, SlotIndex, Process& process) { process = {}; });\n    release_delisted();",
        "[](HostId, SlotIndex, Process& process) { process = {.prepared = process.prepared}; });\n"
        "    release_delisted();"),
    "what was prepared goes on when a rank has ended well": (
        f"{MEMBERSHIP}_ends.cpp", "    const bool were_told = notified_;  // and will ask for their places\n"
        "    abandon_prepared();\n    notified_ = were_told;\n", ""),
    "who does not ask after a notice is waited for": (
        f"{MEMBERSHIP}.cpp", "                rejoin_until_ = now + policy_.rejoin_timeout;\n            }\n"
        "            return gather(now);", "            }\n            return gather(now);"),
    "after a lost host no rank is to blame any more": (
        f"{MEMBERSHIP}.cpp", "    const bool because_of_host = std::exchange(host_was_lost_, false);\n    if (const auto",
        "    const bool because_of_host = host_was_lost_;\n    if (const auto"),
    "that there was none frees the place of another process": (
        f"{MEMBERSHIP}_ends.cpp", "    if (how.was_none && !slot.process.ending) return Meaning::nothing;\n", ""),
    "what has failed is not forgiven": (
        f"{MEMBERSHIP}_hosts.cpp", "now - host.ranked_since >= kStable) host.failures = 0;",
        "false) host.failures = 0;"),
    "a host that is lost while it is left is used again at once": (
        f"{MEMBERSHIP}_hosts.cpp", "        cool(host, now);  // what may be left there is ended before it is used again\n",
        "        host.state = State::absent;\n        if (host.is_listed()) come(id);\n"),
    "a delisted host is connected to when it has cooled down": (
        f"{MEMBERSHIP}_hosts.cpp", "    if (host.state == State::cooling) {\n        host.state = State::absent;\n"
        "        host.cool_until.reset();\n    }\n", ""),
    "others join when a rank has ended well": [
        (f"{MEMBERSHIP}.cpp", "    if (call_until_ || is_finishing_ || warned_until_", "    if (call_until_ || warned_until_"),
        (f"{MEMBERSHIP}.cpp", "    if (is_finishing_ || warned_until_ || !target_", "    if (warned_until_ || !target_")],
    "the first warned rank that ends takes the others' time": (
        f"{MEMBERSHIP}_ends.cpp", "        else if (!warned_until_)\n", "        else\n"),
    "a lost host's prepared processes are waited for": (
        f"{MEMBERSHIP}_hosts.cpp", "    if (had_prepared) abandon_prepared();\n", ""),
    "a prepared process that has ended is waited for": (
        f"{MEMBERSHIP}_ends.cpp", "close_slot(slot, now);\n        abandon_prepared();\n", "close_slot(slot, now);\n"),
    "ranks that an agent has ended without its head count as failed": (
        f"{MEMBERSHIP}_ends.cpp", "    if (!failure_ && !how.is_ours) failure_", "    if (!failure_) failure_"),
    "survivors are not told of a loss": (
        f"{MEMBERSHIP}.cpp", "        orders_.reset_connections = true;\n", ""),
    "a lost host's processes are waited for": (
        f"{MEMBERSHIP}_hosts.cpp", "        for (Slot& slot : host.slots) slot.process = {};\n        if (!policy_.elastic",
        "        if (!policy_.elastic"),
    "a host that was left is not used again": (
        f"{MEMBERSHIP}_hosts.cpp", "    come(id);\n    reconsider(now);", "    reconsider(now);"),
    "a host that has cooled down is not used again": (
        f"{MEMBERSHIP}.cpp", "            hosts_[id].cool_until.reset();\n            come(id);\n",
        "            hosts_[id].cool_until.reset();\n"),
    "a closed slot stays closed": (
        f"{MEMBERSHIP}.cpp", "            slot_at(id, SlotIndex{i}).closed_until.reset();\n", ""),
    "a process without a place in the new world lives on": (
        f"{MEMBERSHIP}.cpp", "        if (hosts_[host].is_listed()) orders_.kill.emplace_back(host, place);\n", ""),
    "a program may fail for ever": [
        (f"{MEMBERSHIP}_ends.cpp", "failure.own_fault ? own_faults_ + 1 : 0", "0"),
        (f"{MEMBERSHIP}_ends.cpp", "too_many || !has_others() || ", "")],
    "a program may fail in one slot after the other": (
        f"{MEMBERSHIP}_ends.cpp", "too_many || !has_others() || ", ""),
    "one failure less is allowed than was asked for": (
        f"{MEMBERSHIP}_ends.cpp", "++rank_failures_ > *policy_", "++rank_failures_ >= *policy_"),
    "a job succeeds when one rank is killed and the last one ends well": (
        f"{MEMBERSHIP}_ends.cpp", "    if (!one_is_lost_) return end(", "    if (!one_is_lost_ || one_is_done_) return end("),
    "a process that was never started is not told to have ended": (
        "worker/agent/agent_ranks.cpp", "        if (!processes_.contains(place)) {  // it has", "        if (false) {  // it has"),
    "who asks for a place that it has already is not answered": (
        "worker/agent/elastic_clients.cpp", "    if (rank != nullptr && rejoin.generation < world_.generation) {",
        "    if (false) {"),
    "a rank's own exit code is not told": (
        "launcher/report/outcome.cpp", "std::max(rank.code & 0xff, 1)", "std::min(rank.code & 0xff, 1)"),
    "a failed rank ends the others although they are to go on": (
        "launcher/head/job.cpp", "        if (!options_.keep_going) stop(SIGTERM", "        stop(SIGTERM"),
}
MUTANTS = OF_DAEMON | OF_HEAD


def edits_of(name):
    mutant = MUTANTS[name]
    return mutant if isinstance(mutant, list) else [mutant]


def check():
    """Each mistake can be made, in one way."""
    for name in MUTANTS:
        for file, old, _ in edits_of(name):
            with open(f"{ROOT}/{file}", encoding="utf-8") as source:
                if (count := source.read().count(old)) != 1:
                    sys.exit(f"simulate: {name}: {file} has the text {count} times that is to be replaced")


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def prepare():
    files = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True, text=True).stdout
    for name in files.splitlines():
        with open(f"{ROOT}/{name}", "rb") as source:
            content = source.read()
        if os.path.exists(f"{COPY}/{name}"):
            with open(f"{COPY}/{name}", "rb") as copy:
                if copy.read() == content:
                    continue
        os.makedirs(os.path.dirname(f"{COPY}/{name}"), exist_ok=True)
        shutil.copy(f"{ROOT}/{name}", f"{COPY}/{name}")
    if not os.path.exists(f"{COPY}/build/build.ninja"):
        run("cmake", "-G", "Ninja", "-S", COPY, "-B", f"{COPY}/build", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DDTRUN_TESTS=UNIT", stdout=subprocess.DEVNULL)


def build():
    run("cmake", "--build", f"{COPY}/build", "--target", "test_simulation", stdout=subprocess.DEVNULL)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def hunt(test):
    """What the simulation says, how many runs that took, and how many seconds of a processor."""
    began = processor_seconds()
    seed = 0
    while (used := processor_seconds() - began) < LIMIT:
        seed += 1
        limit = lambda left=int(LIMIT - used) + 1: resource.setrlimit(resource.RLIMIT_CPU, (left, left))
        done = subprocess.run([PROGRAM, test], env={**os.environ, "DTRUN_SEED": str(seed)},
                              capture_output=True, text=True, preexec_fn=limit)
        if done.returncode == -signal.SIGKILL or done.returncode == -signal.SIGXCPU:
            break
        if done.returncode != 0:
            found = re.search(r"DTRUN_SEED=\d+\n  (.*(?:\n  .*)?)", done.stdout)
            words = found.group(1) if found else done.stdout[-200:]
            return " ".join(words.split())[:110], seed, processor_seconds() - began
    return None, seed, processor_seconds() - began


def main(names):
    check()
    if names == ["--check"]:
        return 0
    if unknown := [name for name in names if name not in MUTANTS]:
        sys.exit(f"simulate: no mistake is called '{unknown[0]}'; they are: {'; '.join(MUTANTS)}")
    names = names or list(MUTANTS)
    prepare()
    build()
    if (bad := hunt_clean()) is not None:
        sys.exit(f"simulate: without a mistake it finds: {bad}")
    missed = []
    for name in names:
        originals = {}
        for file, old, new in edits_of(name):
            with open(f"{COPY}/{file}", encoding="utf-8") as source:
                text = source.read()
            originals.setdefault(file, text)
            with open(f"{COPY}/{file}", "w", encoding="utf-8") as source:
                source.write(text.replace(old, new))
        try:
            build()
            found, runs, seconds = hunt(HEAD if name in OF_HEAD else DAEMON)
        finally:
            for file, text in originals.items():
                with open(f"{COPY}/{file}", "w", encoding="utf-8") as source:
                    source.write(text)
        if found is None:
            missed.append(name)
        print(f"{'MISSED' if found is None else 'found '} {runs:3} runs {seconds:5.1f} s  {name}"
              + (f"\n         {found}" if found else ""), flush=True)
    print(f"{len(names) - len(missed)} found, {len(missed)} missed")
    return 1 if missed else 0


def hunt_clean():
    for test in DAEMON, HEAD:
        done = subprocess.run([PROGRAM, test], env={**os.environ, "DTRUN_SEED": "1"}, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stdout[-300:]
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
