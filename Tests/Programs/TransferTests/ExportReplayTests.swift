import Foundation
import TestSupport
import Testing

@testable import Transfer

/// Exports by an ordinary user, stopped before each changing call. The next export must complete them.
@Suite(.timeLimit(.minutes(60))) struct ExportReplayTests {
    private let place: ExportPlace

    init() throws {
        place = try ExportPlace()
        place.interval = 4096
        try Command(["mkdir", "\(place.source)/inner"]).run().succeeded()
        for (name, mode) in [("closed", 0o444), ("inner/open", 0o644)] as [(String, mode_t)] {
            try place.write(pattern(5000), to: name, mode: mode)
        }
        try Command(["ln", "-s", "/nonexistent/out", "\(place.source)/inner/link"]).run().succeeded()
        for name in ["inner/link", "inner"] { try place.age("\(place.source)/\(name)") }
        if geteuid() == 0 { try #require(chown(place.destination, OrdinaryUser.id, OrdinaryUser.id) == 0) }
    }

    @discardableResult
    private func export() throws -> TransferTotals { try OrdinaryUser.act { try place.export() } }

    private func expectWhole(_ when: Comment) throws {
        #expect(try place.names == ["closed", "inner"], when)
        for (name, mode) in [
            ("closed", S_IFREG | 0o400), ("inner/open", S_IFREG | 0o600), ("inner/link", S_IFLNK | 0o777),
            ("inner", S_IFDIR | 0o700),
        ] {
            let status = try #require(place.status(name), when)
            #expect(status.st_mode == mode, when)
            #expect(status.st_mtim.tv_sec == ExportPlace.time.tv_sec, "\(name) \(when)")
            #expect(status.st_mtim.tv_nsec == ExportPlace.time.tv_nsec, "\(name) \(when)")
        }
        for name in ["closed", "inner/open"] { #expect(try place.exported(name) == pattern(5000), when) }
    }

    @Test("whatever the moment, the next export completes it")
    func whateverMoment() throws {
        let copies = DirectoryCopies(of: place.destination)
        try copies.takeBeforeEachChange(includingAttributes: true) { try export() }
        try expectWhole("at once")
        #expect(copies.paths.count > 12)
        for (call, copy) in copies.paths.enumerated() {
            try copies.putBack(copy)
            let totals = try export()
            #expect(totals.failed == 0 && place.failures.isEmpty, "before call \(call): \(place.failures)")
            try expectWhole("before call \(call)")
        }
    }

    @Test("a file that cannot be made durable is not closed to its owner")
    func fileThatCannotBeMade() throws {
        try Command(["rm", "-r", "\(place.source)/inner"]).run().succeeded()
        let answer = { @Sendable (call: WatchedCall) -> Int32 in call.kind == .synchronize ? EIO : 0 }
        try CallWatcher.watch(place.destination, answer) { () throws in
            #expect(throws: TransferError.self) { try export() }
        }
        let partial = try #require(place.partials.first)
        #expect(place.status(partial)?.st_mode == S_IFREG | 0o600)
    }

    @Test("a closed file of another's is left alone", .enabled(if: geteuid() == 0))
    func closedFileOfAnothers() throws {
        let copies = DirectoryCopies(of: place.destination)
        try copies.takeBeforeEachChange(includingAttributes: true) { try export() }
        let unfinished = try #require(
            copies.paths.last { path in
                (try? FileManager.default.contentsOfDirectory(atPath: path))?.contains { name in
                    var status = stat()
                    return name.hasPrefix(".vaultfs-transfer-") && lstat("\(path)/\(name)", &status) == 0
                        && status.st_mode == S_IFREG | 0o400
                } == true
            })
        try copies.putBack(unfinished)
        let partial = try #require(place.partials.first)
        try #require(chown("\(place.destination)/\(partial)", 0, 0) == 0)
        #expect(try export().failed == 1)
        #expect(place.failures["closed"] == "cannot be written: Permission denied")
        #expect(place.status(partial)?.st_mode == S_IFREG | 0o400)
    }
}
