import CLinux
import Foundation

@testable import VaultCrypto

/// A search of this process's readable and writable memory for byte strings, through /proc/self/mem.
///
/// Its needles, and its copies of memory, are in its own mapping, which it skips. So they are nowhere else, and it does
/// not find itself. Use it in a separate process (an exit test), because it turns memfd_secret off, whose memory is
/// unreadable.
final class MemoryScanner {
    private static let areaSize = 2 << 20
    private static let readSize = 1 << 20
    private let area: UnsafeMutableRawPointer
    private var used = readSize
    private var needles: [(name: String, bytes: UnsafeRawBufferPointer)] = []

    init() throws {
        SecretMemory.renounceMemfdSecret()
        var locked: Int32 = 0
        guard let area = linux_map_secret_memory(Self.areaSize, &locked) else { throw POSIXError(.ENOMEM) }
        self.area = area
    }

    deinit { linux_unmap_secret_memory(area, Self.areaSize) }

    /// Adds a byte string of `count` bytes, at least 16, which `fill` writes in place, and returns it.
    @discardableResult
    func add(_ name: String, count: Int, _ fill: (UnsafeMutableRawBufferPointer) -> Void) -> UnsafeRawBufferPointer {
        precondition(count >= 16 && used + count <= Self.areaSize)
        let place = UnsafeMutableRawBufferPointer(start: area + used, count: count)
        used += count
        fill(place)
        needles.append((name, UnsafeRawBufferPointer(place)))
        return UnsafeRawBufferPointer(place)
    }

    /// Adds a part of a secret.
    func add(_ name: String, _ secret: SecretBytes, _ range: Range<Int>? = nil) {
        add(name, count: range?.count ?? secret.count) { place in
            secret.withUnsafeBytes { bytes in
                place.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[range ?? 0..<secret.count]))
            }
        }
    }

    /// Adds an AES-256 key, 32 bytes of a secret from `start` on, in four parts: its halves, and two of the last round
    /// keys. These occur only in a key schedule. A decryption schedule has the last one too.
    func addKeySchedule(_ name: String, _ secret: SecretBytes, from start: Int = 0) {
        add("\(name), first half", secret, start..<start + 16)
        add("\(name), second half", secret, start + 16..<start + 32)
        let schedule = UnsafeMutableRawBufferPointer(start: area + used, count: AESKeyExpansion.size)
        used += schedule.count
        secret.withUnsafeBytes { bytes in
            AESKeyExpansion.expand(UnsafeRawBufferPointer(rebasing: bytes[start..<start + 32]), into: schedule)
        }
        for round in [13, 14] {
            let key = UnsafeRawBufferPointer(rebasing: schedule[16 * round..<16 * round + 16])
            needles.append(("\(name), round key \(round)", key))
        }
    }

    /// Returns the names of the byte strings found in memory.
    func found() throws -> Set<String> {
        let memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
        guard memory >= 0 else { throw POSIXError(.EACCES) }
        defer { close(memory) }
        var found: Set<String> = []
        for mapping in try mappings() {
            var start = mapping.lowerBound
            while start < mapping.upperBound {
                let count = pread(memory, area, min(Self.readSize, mapping.upperBound - start), start)
                // Unreadable memory (a device's memory) cannot contain keys either.
                guard count > 0 else { break }
                for needle in needles where contains(needle.bytes, count: count) { found.insert(needle.name) }
                guard start + count < mapping.upperBound else { break }
                start += max(1, count - 64)
            }
        }
        return found
    }

    /// Returns the addresses of the readable, writable mappings, without the scanner's area (with which the kernel may
    /// merge another mapping).
    private func mappings() throws -> [Range<Int>] {
        let own = Int(bitPattern: area)..<Int(bitPattern: area) + Self.areaSize
        // String(contentsOfFile:) would stop after a page.
        guard let maps = FileHandle(forReadingAtPath: "/proc/self/maps") else { throw POSIXError(.ENOENT) }
        let text = String(decoding: try maps.readToEnd() ?? Data(), as: UTF8.self)
        return text.split(separator: "\n").flatMap { line -> [Range<Int>] in
            let fields = line.split(separator: " ")
            let bounds = fields[0].split(separator: "-").compactMap { Int($0, radix: 16) }
            guard fields[1].hasPrefix("rw"), bounds.count == 2 else { return [] }
            let whole = bounds[0]..<bounds[1]
            guard whole.overlaps(own) else { return [whole] }
            return [whole.lowerBound..<own.lowerBound, own.upperBound..<whole.upperBound].filter { !$0.isEmpty }
        }
    }

    /// Returns true if the first `count` bytes of the area contain the needle.
    private func contains(_ needle: UnsafeRawBufferPointer, count: Int) -> Bool {
        guard let pattern = needle.baseAddress else { return false }
        var place = UnsafeRawPointer(area)
        let end = UnsafeRawPointer(area) + count
        while end - place >= needle.count {
            guard let hit = memchr(place, Int32(needle[0]), end - place - needle.count + 1) else { return false }
            if memcmp(hit, pattern, needle.count) == 0 { return true }
            place = UnsafeRawPointer(hit) + 1
        }
        return false
    }
}

/// The key expansion of AES-256 (FIPS 197 section 5.2). It works in place, so it leaves no copy elsewhere.
enum AESKeyExpansion {
    /// 15 round keys of 16 bytes.
    static let size = 240

    static func expand(_ key: UnsafeRawBufferPointer, into schedule: UnsafeMutableRawBufferPointer) {
        let box = substitutionBox()
        for index in 0..<32 { schedule[index] = key[index] }
        var constant: UInt8 = 1
        for start in stride(from: 32, to: size, by: 4) {
            let word = start / 4 % 8
            for byte in 0..<4 {
                var value = schedule[start - 4 + (word == 0 ? (byte + 1) % 4 : byte)]
                if word % 4 == 0 { value = box[Int(value)] }
                if word == 0, byte == 0 { value ^= constant }
                schedule[start + byte] = schedule[start - 32 + byte] ^ value
            }
            if word == 0 { constant = double(constant) }
        }
    }

    private static func double(_ value: UInt8) -> UInt8 { value << 1 ^ (value & 0x80 != 0 ? 0x1b : 0) }

    /// Returns FIPS 197's S-box (section 5.1.1): inverses in GF(2^8), enumerated by the powers of 3 and of its inverse.
    private static func substitutionBox() -> [UInt8] {
        var box = [UInt8](repeating: 0x63, count: 256)
        var power: UInt8 = 1
        var inverse: UInt8 = 1
        repeat {
            power ^= double(power)
            inverse ^= inverse << 1
            inverse ^= inverse << 2
            inverse ^= inverse << 4
            if inverse & 0x80 != 0 { inverse ^= 0x09 }
            let rotations = (1...4).map { inverse << UInt8($0) | inverse >> UInt8(8 - $0) }
            box[Int(power)] = rotations.reduce(inverse, ^) ^ 0x63
        } while power != 1
        return box
    }
}
