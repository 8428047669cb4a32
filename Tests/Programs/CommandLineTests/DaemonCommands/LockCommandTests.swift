import ArgumentParser
import Control
import Daemon
import Foundation
import Locking
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import vaultfs

/// `lock`, `unlock` and `events` before and after they send a request to a daemon.
@Suite(.timeLimit(.minutes(60))) struct LockCommandTests {
    @Test("the help lists every exit code")
    func helpListsEveryExitCode() throws {
        let help = try Command([Products.binary, "--help"]).run().output
        for code in FailureCode.allCases { #expect(help.contains("\(code.rawValue)  \(code.explanation)\n")) }
    }

    @Test(
        "an event is a line of words",
        arguments: [
            (#""event":"state","state":"unlocked","reasons":[]"#, "now unlocked"),
            (#""event":"state","state":"locked","reasons":["idle","x"]"#, "now locked: the files were not used, x"),
            (#""event":"will-lock","graceSeconds":0,"reasons":["lock-file"]"#, "locking: a lock file exists"),
            (#""event":"will-lock","graceSeconds":2.5,"reasons":[]"#, "locking in 2.5 s"),
            (#""event":"did-lock","receipt":{"complete":false,"unpurged":["x"]}"#, "locked: not purged: x"),
            (#""event":"will-unlock""#, "unlocking"), (#""event":"did-unlock""#, "unlocked"),
            (#""event":"denied","count":1"#, "refused 1 request"), (#""event":"unmounted""#, "unmounted"),
            (#""event":"integrity-error","path":"a\u001bb","reason":"chunk 1: bad""#, "damaged: a?b: chunk 1: bad"),
            (#""event":"integrity-error","encryptedPath":"Xy","reason":"bad""#, "damaged: encrypted path Xy: bad"),
            (#""event":"problem","atEnd":false,"reason":"full""#, "problem: full"),
            (
                #""event":"problem","atEnd":true,"reason":"full""#,
                "ended, and not everything is known to be in place: full"
            ),
            (#""event":"later","count":2"#, "later: count 2"),
        ])
    func eventWords(fields: String, words: String) throws {
        let json = #"{"time":"2026-11-21T10:00:00Z","mountpoint":"/m",\#(fields)}"#
        let event = try JSONDecoder().decode(ControlEvent.self, from: Data(json.utf8))
        #expect(EventText.line(event) == "2026-11-21T10:00:00Z /m: \(words)")
    }

    private static func receipt(_ json: String) throws -> LockReceipt {
        try JSONDecoder().decode(LockReceipt.self, from: Data(json.utf8))
    }

    @Test("a receipt for people")
    func receiptForPeople() throws {
        let receipt = try Self.receipt(
            """
            {"complete":true,"unpurged":[],"reasons":["command"],"policy":"forget","inodes":12,"names":"epoch",
            "cacheBytes":4096,"keysForgotten":["complete","unless-open"],"steps":[{"name":"requests","milliseconds":0.25},
            {"name":"inodes","milliseconds":40.12345}],"purgeMilliseconds":41,"ofTomorrow":null}
            """)
        #expect(receipt.left == nil)
        #expect(receipt.summary == "refused and purged after 41 ms")
        #expect(try Self.receipt(#"{"complete":false,"unpurged":["a","b"]}"#).summary == "not purged: a; b")
        #expect(
            receipt.lines.map { "\($0.label): \($0.text)" } == [
                "locked by: command", "on lock: forget",
                "purged: 12 inodes, names (epoch), 4096 bytes of cached blocks",
                "keys wiped: complete, unless-open", "took: requests 0.25 ms, inodes 40.123 ms",
                "in all: refused and purged after 41 ms",
            ])
    }

    @Test(
        "a receipt that does not say that all is purged is a failure",
        arguments: [
            (#"{"complete":false,"unpurged":[]}"#, "the receipt does not say what"),
            (#"{"complete":true,"unpurged":[]}"#, nil),
            (#"{"complete":false,"unpurged":["a\u001B[2J"]}"#, "a?[2J"),
            // A complete receipt with something unpurged must be refused.
            (#"{"complete":true,"unpurged":["a"]}"#, "a"),
        ]
    )
    func receiptThatDoesNotSay(json: String, left: String?) throws {
        #expect(try Self.receipt(json).left == left)
    }

    @Test("fields as people read them")
    func fieldsPeopleReadThem() {
        struct Inner {
            let cacheHits = 1
            let none: Int? = nil
        }
        struct Fields {
            let yes: Bool? = true
            let short = 0.1234, whole = 40.0, huge = 1e300
            let number: UInt64? = .max
            let empty: [String] = []
            let text = "a\n"
            let reasons: [LockReason]? = [.lockFile, .idle]
            let inner: Inner? = Inner()
            let hidden = 1
            let missing: [String]? = nil
        }
        #expect(
            FieldText.fields(of: Fields(), without: ["hidden"]).map { "\($0.name): \($0.text)" } == [
                "empty: none", "huge: 1e+300", "inner: cache hits 1", "number: 18446744073709551615",
                "reasons: lock-file, idle", "short: 0.123", "text: a?", "whole: 40", "yes: yes",
            ])
    }
}

/// The search for running daemons.
@Suite(.timeLimit(.minutes(60))) struct DaemonSearchTests {
    private static func receipt(_ mountpoint: String) -> LockReceipt {
        var receipt = LockReceipt()
        receipt.names = mountpoint
        return receipt
    }

    @Test("everybody's places are this user's and those of every user who has a mount")
    func everybodysPlacesAreThisUsers() {
        let line = "1 0 0:1 / /m rw - fuse.vaultfs v rw,user_id=4242,group_id=7\n"
        let table = MountTable(parsing: Array(line.utf8))
        #expect(table.entries.first?.groupID == 7)
        let all = DaemonSearch.allDirectories(table)
        #expect(all.contains(.init(path: "/run/user/4242/vaultfs", userID: 4242)))
        #expect(all.contains(.init(path: "/tmp/vaultfs-4242", userID: 4242)))
        for own in DaemonSearch.ownDirectories() { #expect(all.contains(own)) }
        #expect(Set(all).count == all.count)
    }

    @Test("every socket of every place is asked once, whatever one of them does")
    func everySocketOfEveryPlace() throws {
        let parent = try TemporaryDirectory()
        let base = FilePath(parent.path)
        let directories = try ["a", "b"].map { name in
            try RuntimeDirectory.make(at: base.appending(name), user: geteuid())
        }
        // The first daemon replies only after the others.
        let others = DispatchSemaphore(value: 0)
        let isLate = Atomic(false)
        let servers = try directories.flatMap { directory in
            try ["/1", "/2"].map { mountpoint in
                let isFirst = directory === directories[0] && mountpoint == "/1"
                let server = try ControlServer(directory: { directory }, mountpoint: Array(mountpoint.utf8))
                try server.start { _, reply in
                    Thread.detachNewThread {
                        if isFirst {
                            for _ in 0..<3 { others.wait() }
                            isLate.store(true, ordering: .relaxed)
                        }
                        reply(.locked(receipt: Self.receipt(mountpoint), already: isFirst))
                        others.signal()
                    }
                }
                return server
            }
        }
        defer { for server in servers { server.stop() } }
        #expect(symlink(base.string, base.string + "/again") == 0)
        let places = ["a", "b", "again/a", "none"].map { name in
            DaemonSearch.Candidate(path: base.appending(name), userID: geteuid())
        }
        // The command must not read another user's directory.
        let foreign = DaemonSearch.Candidate(path: base.appending("b"), userID: geteuid() + 1)
        let answers = DaemonSearch.ask([foreign] + places) { socket in
            (try? socket.connect().send(.lock(forgetsKeys: false))) ?? .error(ControlFailure(.failed, "no answer"))
        }
        let wasLate = isLate.load(ordering: .relaxed)
        #expect(wasLate)
        #expect(answers.count == 4)
        #expect(answers.count { $0 == .locked(receipt: Self.receipt("/1"), already: true) } == 1)
        #expect(answers.count { $0 == .locked(receipt: Self.receipt("/2"), already: false) } == 2)
    }
}
