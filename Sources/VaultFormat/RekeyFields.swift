/// How what a rekey notes is laid out before it is sealed: fields, each after its size, and paths of backing entries.
enum RekeyFields {
    static let timesSize = 32

    static func encode(_ fields: [[UInt8]]) -> [UInt8] {
        var body: [UInt8] = []
        for field in fields { body += number(UInt64(field.count)) + field }
        return body
    }

    /// Nil where the fields do not fill it exactly.
    static func decode(_ body: [UInt8]) -> [[UInt8]]? {
        var fields: [[UInt8]] = []
        var position = 0
        while position < body.count {
            guard body.count - position >= 8 else { return nil }
            let size = body.withUnsafeBytes { $0.littleEndian64(at: position) }
            position += 8
            guard let size = Int(exactly: size), size <= body.count - position else { return nil }
            fields.append(Array(body[position..<(position + size)]))
            position += size
        }
        return fields
    }

    /// atime and mtime, in seconds and nanoseconds.
    static func encode(times: [UInt64]) -> [UInt8] { times.prefix(4).flatMap { number($0) } }

    /// Of a field of `timesSize` bytes.
    static func times(_ field: [UInt8]) -> [UInt64] {
        field.withUnsafeBytes { bytes in (0..<4).map { bytes.littleEndian64(at: $0 * 8) } }
    }

    static func number(_ value: UInt64) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 8)
        bytes.storeLittleEndian64(value, at: 0)
        return bytes
    }

    static func joined(_ path: [[UInt8]]) -> [UInt8] { Array(path.joined(separator: [UInt8(ascii: "/")])) }

    /// Nil where an entry of the path cannot be one.
    static func split(_ path: [UInt8]) -> [[UInt8]]? {
        if path.isEmpty { return [] }
        let entries = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { Array($0) }
        return entries.allSatisfy(isEntry) ? entries : nil
    }

    /// Whether it can be one entry of a directory, and not the way out of it.
    static func isEntry(_ entry: [UInt8]) -> Bool {
        (1...EntryName.maximumLength).contains(entry.count) && !entry.contains(0) && !entry.contains(UInt8(ascii: "/"))
            && entry != Array(".".utf8) && entry != Array("..".utf8)
    }
}
