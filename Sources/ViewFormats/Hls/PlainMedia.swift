/// Media files that are not encrypted, by how they begin.
enum PlainMedia {
    private static let packetSize = 188
    private static let boxes = ["ftyp", "styp", "moof", "sidx", "moov"].map { Array($0.utf8) }

    /// What people call it; nil for anything else.
    static func name(of bytes: [UInt8]) -> String? {
        // Every packet of a transport stream begins with this byte (ISO/IEC 13818-1, 2.4.3.2).
        if bytes.count >= packetSize,
            stride(from: 0, to: min(bytes.count, 4 * packetSize), by: packetSize).allSatisfy({ bytes[$0] == 0x47 })
        {
            return "MPEG-TS"
        }
        // The type of the first box (ISO/IEC 14496-12, 4.2).
        if bytes.count >= 8, boxes.contains(Array(bytes[4..<8])) { return "MP4" }
        if bytes.starts(with: [0x1A, 0x45, 0xDF, 0xA3]) { return "Matroska" }
        if bytes.starts(with: "WEBVTT".utf8) { return "WebVTT" }
        return nil
    }
}
