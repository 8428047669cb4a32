import Foundation
import TestSupport
import Testing
import ViewFormats

@testable import Transfer

/// An export interrupted halfway in a file.
@Suite(.timeLimit(.minutes(60)), .serialized) struct ExportResumeTests {
    private static let interval = 4 << 20
    private static let size = 2 * interval + 4096

    private let place: ExportPlace

    /// Exports two intervals, except for 1 MiB.
    init() throws {
        place = try ExportPlace()
        try place.writeHole(Self.size)
        place.limit = UInt64(2 * Self.interval - (1 << 20))
        #expect(throws: TransferError.stopped) { try place.export() }
        place.limit = .max
        #expect(try place.partials.count == 1)
        #expect(try place.names.count == 1)
        // Release the lock explicitly, because another test's child has a copy until it runs its program.
        let held = open(try partial, O_RDWR | O_CLOEXEC)
        defer {
            flock(held, LOCK_UN)
            close(held)
        }
        try poll("the lock of the export") { flock(held, LOCK_EX | LOCK_NB) == 0 }
    }

    /// Compares the result with itself, because every block of zeros but the first decrypts to the same bytes.
    private func expectWhole(sourceLocation: SourceLocation = #_sourceLocation) throws {
        let found = try place.exported()
        #expect(found.count == Self.size, sourceLocation: sourceLocation)
        let block = found[16..<32]
        #expect(block.contains { $0 != 0 }, sourceLocation: sourceLocation)
        let isSame = found.withUnsafeBytes { bytes in
            bytes.baseAddress.map { memcmp($0 + 16, $0 + 32, Self.size - 32) == 0 } ?? false
        }
        #expect(isSame, sourceLocation: sourceLocation)
        #expect(try place.partials.isEmpty, sourceLocation: sourceLocation)
    }

    private var partial: String { get throws { try "\(place.destination)/\(#require(place.partials.first))" } }

    @Test("continues after what is on disk for sure")
    func goesOnBehind() throws {
        let totals = try place.export()
        #expect(totals.bytesPresent == UInt64(Self.interval))
        #expect(totals.bytes == UInt64(Self.size - Self.interval))
        try expectWhole()
    }

    @Test("a file that ends at an interval is not known to be on disk as far as that")
    func fileThatEndsAtInterval() throws {
        try #require(truncate(partial, Self.interval) == 0)
        let totals = try place.export()
        #expect(totals.bytesPresent == 0)
        try expectWhole()
    }

    @Test("a source that was changed is exported anew", arguments: ["content", "time", "file"])
    func sourceThatWasChanged(change: String) throws {
        let path = "\(place.source)/file"
        switch change {
        case "content":
            let file = open(path, O_WRONLY | O_CLOEXEC)
            try #require(pwrite(file, [1], 1, 5 << 20) == 1)
            close(file)
            try place.age(path)
        case "time": try Command(["touch", path]).run().succeeded()
        default: try Command(["sh", "-c", "cp -p \(path) \(path).new; mv \(path).new \(path)"]).run().succeeded()
        }
        let totals = try place.export()
        #expect(totals.bytesPresent == 0 && totals.bytes == UInt64(Self.size))
        #expect(try place.names == ["file"])
    }

    @Test("another key or vector begins anew", arguments: ["key", "vector"])
    func anotherKeyOrVectorBegins(what: String) throws {
        if what == "key" { place.keyBytes[0] ^= 1 } else { place.vector = InitialVector(high: 3, low: 4) }
        let totals = try place.export()
        #expect(totals.bytesPresent == 0 && totals.files == 1)
        try expectWhole()
    }

    @Test("a file that two exports write at once is left to the first")
    func fileThatTwoExportsWrite() throws {
        let held = open(try partial, O_RDWR | O_CLOEXEC)
        defer { close(held) }
        try #require(flock(held, LOCK_SH | LOCK_NB) == 0)
        let totals = try place.export()
        #expect(totals.failed == 1)
        #expect(place.failures["file"]?.contains("another export is writing it") == true)
        #expect(try place.names.count == 1)
    }

    @Test("a file that has another name elsewhere is not written to")
    func fileThatHasAnotherName() throws {
        let name = place.directory.appending("elsewhere")
        try #require(link(partial, name) == 0)
        #expect(try place.export().failed == 1)
        var status = stat()
        #expect(stat(name, &status) == 0 && status.st_size == 2 * Self.interval - (1 << 20))
    }

    @Test("a file that comes meanwhile stays")
    func fileThatComesMeanwhileStays() throws {
        let target = "\(place.destination)/file"
        place.onBatch = { totals in
            if totals.bytes > 0 { try? Data([1, 2, 3]).write(to: URL(filePath: target)) }
        }
        #expect(try place.export().failed == 1)
        #expect(try place.exported() == [1, 2, 3])
    }

    @Test("a source that changes meanwhile is an error, and nothing is left of it")
    func sourceThatChangesMeanwhile() throws {
        let path = "\(place.source)/file"
        place.onBatch = { totals in
            if totals.bytes >= UInt64(Self.interval) { _ = truncate(path, Self.size + 16) }
        }
        #expect(try place.export().failed == 1)
        #expect(place.failures["file"] == "it was changed while it was read")
        #expect(try place.names.isEmpty)
    }
}
