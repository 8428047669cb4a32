@testable import ViewFormats

/// Returns a playlist of these lines, `#EXTM3U` first, LF at each end.
func playlist(_ lines: String...) -> [UInt8] {
    Array((["#EXTM3U"] + lines).map { $0 + "\n" }.joined().utf8)
}

/// Returns a playlist's references, each as text for a test to compare.
func references(_ text: [UInt8]) throws -> [String] {
    let playlist = try Playlist.parse(text)
    return playlist.references.map { reference in
        var parts = [
            "\(reference.line)", "\(reference.role)", String(decoding: text[reference.uri], as: UTF8.self),
        ]
        if let bytes = reference.bytes { parts.append("\(bytes)") }
        switch reference.encryption {
        case nil: break
        case .chain(let key, let vector, let cipher):
            parts.append("\(String(decoding: playlist.keys[key], as: UTF8.self)) \(hex(vector))")
            if cipher != .aes128CBC { parts.append(cipher.rawValue) }
        case .samples(let key): parts.append("\(String(decoding: playlist.keys[key], as: UTF8.self)) samples")
        case .unusable(let reason): parts.append("unusable: line \(reason.line)")
        }
        return parts.joined(separator: " ")
    }
}

/// The 16 bytes without leading zeros.
func hex(_ vector: InitialVector) -> String {
    let low = String(vector.low, radix: 16)
    guard vector.high > 0 else { return low }
    return String(vector.high, radix: 16) + String(repeating: "0", count: 16 - low.count) + low
}

extension Playlist {
    /// The text if all files are found and all byte ranges stay.
    var renderedWithoutKeys: [UInt8] { rendered { (_, _) in ShownReference() } ?? [] }
}
