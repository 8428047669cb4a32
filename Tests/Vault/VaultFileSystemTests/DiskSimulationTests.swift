import DiskSimulation
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of the simulated disk: the changes that it may lose, and those that it must keep.
@Suite struct DiskSimulationTests {
    private let directory: TemporaryDirectory
    private let root: Descriptor
    private var store: String { directory.appending("store") }

    init() throws {
        directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
        try #require(mkdir(directory.appending("store"), 0o700) == 0)
        root = try Descriptor(path: FilePath(bytes: ascii(directory.appending("store"))), flags: O_RDONLY | O_DIRECTORY)
    }

    /// Returns the contents of the named files in the states possible after `body`, nil for an absent file.
    private func states(of names: String..., after body: () throws -> Void) throws -> Set<[[UInt8]?]> {
        let record = try DiskRecord(of: store)
        try body()
        record.stop()
        var disk = SimulatedDisk(record.initial)
        for event in record.events { disk.apply(event) }
        var states: Set<[[UInt8]?]> = []
        for seed in 0..<200 {
            let path = directory.appending("cut-\(seed)")
            try disk.cut(seed: UInt64(seed)).write(to: path)
            defer { try? FileManager.default.removeItem(atPath: path) }
            states.insert(names.map { try? Bytes.of("\(path)/\($0)") })
        }
        return states
    }

    private func file(_ name: String) throws -> Descriptor {
        try Descriptor(at: root, Component(ascii(name)), flags: O_RDWR | O_CREAT, mode: 0o600)
    }

    private func pages(_ bytes: UInt8...) -> [UInt8] { bytes.flatMap { [UInt8](repeating: $0, count: 4096) } }

    @Test("data that was synced stays, and other data may be there or not, in any order")
    func data() throws {
        let found = try states(of: "f") {
            let file = try file("f")
            try file.write(pages(1, 1), at: 0)
            try file.synchronize(dataOnly: true)
            try file.write(pages(2), at: 0)
            try file.write(pages(3), at: 4096)
        }
        #expect(found.isSuperset(of: [[pages(1, 1)], [pages(2, 1)], [pages(1, 3)], [pages(2, 3)]]))
        #expect(found.allSatisfy { $0[0]?.count == 8192 && $0[0]?.allSatisfy { (1...3).contains($0) } == true })
        let isTorn = { (page: [UInt8].SubSequence) in page.contains { $0 != page.first } }
        #expect(found.contains { isTorn($0[0]?[..<4096] ?? []) })
    }

    @Test("a size may be there without its data, and data only inside the size")
    func size() throws {
        let found = try states(of: "f") {
            let file = try file("f")
            try file.synchronize(dataOnly: true)
            try file.write(pages(1, 2), at: 0)
        }
        #expect(found.isSuperset(of: [[[]], [pages(0, 0)], [pages(1, 2)], [pages(1)], [pages(0, 2)]]))
        #expect(found.allSatisfy { ($0[0]?.count ?? 1) % 4096 == 0 })
    }

    @Test(
        "data written where a truncation freed space is not in the longer file, but the end of its page may be zero")
    func truncation() throws {
        let found = try states(of: "f") {
            let file = try file("f")
            try file.write(pages(1, 1), at: 0)
            try file.synchronize(dataOnly: true)
            try file.truncate(to: 100)
            try file.write(pages(2), at: 4096)
        }
        let start = [UInt8](repeating: 1, count: 100)
        let zeroed = start + [UInt8](repeating: 0, count: 3996)
        #expect(found.isSuperset(of: [[pages(1, 1)], [zeroed + pages(1)], [start], [zeroed + pages(2)]]))
        #expect(!found.contains { $0[0]?.starts(with: pages(1)) == true && $0[0]?.last == 2 })
    }

    @Test("names change in their order, and stay once a later one is synced")
    func names() throws {
        let found = try states(of: "a", "b", "c") {
            try file("a").synchronize(dataOnly: true)
            _ = try file("b")
            try #require(renameat(root.fd, "a", root.fd, "c") == 0)
        }
        #expect(found == [[[], nil, nil], [[], [], nil], [nil, [], []]])
        let synced = try states(of: "b", "c", "d") {
            try #require(unlinkat(root.fd, "c", 0) == 0)
            try root.synchronize(dataOnly: false)
            _ = try file("d")
        }
        #expect(synced == [[[], nil, nil], [[], nil, []]])
    }
}
