import Foundation
import Glibc
import LinuxSystem

/// The raw bytes of a backing file.
enum Bytes {
    static func of(_ path: String) throws -> [UInt8] {
        let file = Descriptor(owning: open(path, O_RDONLY | O_CLOEXEC))
        var bytes = [UInt8](repeating: 0, count: Int(try file.status().st_size))
        let count = try bytes.withUnsafeMutableBytes { try file.read(at: 0, into: $0) }
        return Array(bytes[..<count])
    }

    static func entries(_ path: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path)
    }

    static func put(_ bytes: [UInt8], at path: String) throws {
        let file = Descriptor(owning: open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600))
        try bytes.withUnsafeBytes { try file.write($0, at: 0) }
    }
}
