import CLinux
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// A random change by an attacker with write access to the vault's directory, but without a key.
struct Tampering {
    /// The text for a failure's message.
    let text: String
    /// True if the change may bring authentic data to this position: from the file's former state, or from another
    /// whole file.
    let isReplay: Bool

    /// Changes the backing file of `index` once.
    init(_ index: Int, of vault: TamperVault, _ random: inout SeededGenerator) throws {
        (text, isReplay) = try Self.change(index, of: vault, &random)
    }

    private static func change(
        _ index: Int, of vault: TamperVault, _ random: inout SeededGenerator
    ) throws -> (String, isReplay: Bool) {
        let file = try Descriptor(path: FilePath(bytes: Array(vault.backing[index].utf8)), flags: O_RDWR)
        let size = Int(try file.status().st_size)
        let states = vault.model.files[index]
        let other = Int.random(in: 0..<vault.model.files.count, using: &random)
        let otherStates = vault.model.files[other]
        let otherState = otherStates[Int.random(in: 0..<otherStates.count, using: &random)].backing
        let recordSize = vault.chunkSize + 32
        let chunks = max(0, size - 128 + recordSize - 1) / recordSize
        let from = Int.random(in: 0...chunks, using: &random)
        let to = Int.random(in: 0...chunks, using: &random)

        func put(_ bytes: some Sequence<UInt8>, at offset: Int) throws {
            try Array(bytes).withUnsafeBytes { try file.write($0, at: UInt64(offset)) }
        }
        func bytes(_ range: Range<Int>) throws -> [UInt8] {
            var bytes = [UInt8](repeating: 0, count: range.count)
            let had = try bytes.withUnsafeMutableBytes { try file.read(at: UInt64(range.lowerBound), into: $0) }
            bytes.removeLast(bytes.count - had)
            return bytes
        }
        func place(_ chunk: Int) -> Range<Int> {
            let start = min(size, 128 + chunk * recordSize)
            return start..<min(size, start + recordSize)
        }
        func record(_ chunk: Int, of state: [UInt8]) -> ArraySlice<UInt8> {
            let start = min(state.count, 128 + chunk * recordSize)
            return state[start..<min(state.count, start + recordSize)]
        }
        func punch(_ range: Range<Int>) {
            guard !range.isEmpty else { return }
            _ = linux_fallocate(
                file.fd, linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE, Int64(range.lowerBound),
                Int64(range.count))
        }
        func extend(by count: Int) throws { try file.truncate(to: UInt64(size + count)) }
        /// Returns a size at which errors are likely: of a record, of a page, or random.
        func amount() -> Int {
            switch Int.random(in: 0..<5, using: &random) {
            case 0: Int.random(in: 1...40, using: &random)
            case 1: recordSize * Int.random(in: 1...3, using: &random)
            case 2: 4096 - size % 4096
            case 3: recordSize - (size - 128) % recordSize
            default: Int.random(in: 1...(3 * recordSize), using: &random)
            }
        }

        switch Int.random(in: 0..<21, using: &random) {
        case 0:
            let position = Int.random(in: 0..<max(1, size), using: &random)
            try put(bytes(position..<(position + 1)).map { $0 ^ 1 << UInt8(position % 8) }, at: position)
            return ("a bit of byte \(position) flipped", false)
        case 1:
            let position = Int.random(in: 0..<128, using: &random)
            try put(bytes(position..<(position + 1)).map { $0 ^ 0x10 }, at: position)
            return ("a bit of byte \(position) flipped", false)
        case 2:
            let (one, two) = (try bytes(place(from)), try bytes(place(to)))
            try put(two, at: place(from).lowerBound)
            try put(one, at: place(to).lowerBound)
            return ("records \(from) and \(to) exchanged", false)
        case 3:
            try put(bytes(place(from)), at: place(to).lowerBound)
            return ("record \(from) copied over \(to)", false)
        case 4:
            try put(record(from, of: otherState), at: place(to).lowerBound)
            return ("record \(from) of file \(other) put at \(to)", other == index)
        case 5:
            try put(record(to, of: states[0].backing), at: place(to).lowerBound)
            return ("record \(to) as it was before", true)
        case 6:
            try put([UInt8](repeating: 0, count: place(to).count), at: place(to).lowerBound)
            return ("record \(to) zeroed", false)
        case 7:
            punch(place(to))
            return ("record \(to) punched", false)
        case 8:
            let start = Int.random(in: 0...size, using: &random)
            let end = min(size, start + amount())
            punch(start..<end)
            return ("bytes \(start)..<\(end) punched", false)
        case 9:
            let start = Int.random(in: 0...size, using: &random)
            let end = min(size, start + amount())
            try put(random.bytes(end - start), at: start)
            return ("bytes \(start)..<\(end) made garbage", false)
        case 10:
            let end = max(0, size - amount())
            try file.truncate(to: UInt64(end))
            return ("cut to \(end) bytes", false)
        case 11:
            try file.truncate(to: UInt64(place(to).lowerBound))
            return ("cut before record \(to)", false)
        case 12:
            let end = Int.random(in: 0...size, using: &random)
            try file.truncate(to: UInt64(end))
            return ("cut to \(end) bytes", false)
        case 13, 14:
            let count = amount()
            try extend(by: count)
            return ("extended by a hole of \(count) bytes", false)
        case 15:
            let count = amount()
            try put([UInt8](repeating: 0, count: count), at: size)
            return ("extended by \(count) zeros", false)
        case 16:
            let count = amount()
            try put(random.bytes(count), at: size)
            return ("extended by \(count) bytes of garbage", false)
        case 17:
            let source = Bool.random(using: &random) ? states[0].backing : otherState
            let number = Bool.random(using: &random) ? chunks : from
            try put(record(number, of: source), at: size)
            return ("extended by a record \(number)", true)
        case 18:
            try put(states[0].backing.prefix(128), at: 0)
            return ("the header as it was before", true)
        case 19:
            try put(otherState.prefix(128), at: 0)
            return ("the header of file \(other)", true)
        default:
            let source = Bool.random(using: &random) ? states[0].backing : otherState
            try file.truncate(to: 0)
            try put(source, at: 0)
            return ("all of it another's, or as it was before (file \(other))", true)
        }
    }
}
