@testable import ViewFormats

/// Returns a playlist of these lines, `#EXTM3U` first, LF at each end.
func playlist(_ lines: String...) -> [UInt8] {
    Array((["#EXTM3U"] + lines).map { $0 + "\n" }.joined().utf8)
}

/// Returns the line of a key of whole segments.
func keyLine(_ uri: String, _ vector: String = ",IV=0x1") -> String {
    "#EXT-X-KEY:METHOD=AES-128,URI=\"\(uri)\"\(vector)"
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
func hex(_ vector: InitialVector) -> String { String(UInt128(vector.high) << 64 | UInt128(vector.low), radix: 16) }

extension Playlist {
    /// The text if all files are found and all byte ranges stay.
    var renderedWithoutKeys: [UInt8] { rendered { (_, _) in ShownReference() } ?? [] }
}
