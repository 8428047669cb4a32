internal import LinuxSystem

extension VaultConfiguration {
    /// The bytes of `vaultfs.json`: indented for people, and ending in LF. `parse` gives the same value back.
    package func serialized() -> [UInt8] {
        let featureList = features.map(Self.quoted).joined(separator: ", ")
        let text = """
            {
              "format": "vaultfs",
              "version": 1,
              "vault": "\(vault.hex)",
              "chunkSize": \(chunkSize),
              "features": [\(featureList)],
              "generation": \(generation),\(epoch.map(Self.text) ?? "")
              "slots": [
            \(slots.map(Self.text).joined(separator: ",\n"))
              ],
              "mac": "\(KdfParameters.text(mac))"
            }

            """
        return Array(text.utf8)
    }

    private static func text(of epoch: KeyEpoch) -> String {
        let previous = epoch.previous.map { quoted(KdfParameters.text($0)) } ?? "null"
        return """

              "epoch": \(epoch.number),
              "previous": \(previous),
            """
    }

    private static func text(of slot: KeySlot) -> String {
        """
            {
              "id": \(slot.id),
              "kind": "\(slot.kind.rawValue)",
              "label": \(quoted(slot.label)),
              "created": "\(slot.created)",
              "expires": \(slot.expires.map(quoted) ?? "null"),
              "kdf": { \(text(of: slot.kdf)) },
              "sealed": "\(KdfParameters.text(slot.sealed))"\(slot.window.map(text) ?? "")
            }
        """
    }

    private static func text(of window: PlayWindow) -> String {
        let (started, seen) = (window.started.map(quoted) ?? "null", window.seen.map(quoted) ?? "null")
        return """
            ,
                  "window": { "seconds": \(window.seconds), "started": \(started), "seen": \(seen) }
            """
    }

    private static func text(of kdf: KdfParameters) -> String {
        switch kdf {
        case .scrypt(let cost, let salt):
            """
            "name": "scrypt", "logN": \(cost.logN), "r": \(cost.r), "p": \(cost.p), "salt": "\(KdfParameters.text(salt))"
            """
        case .hkdfSha256(let salt):
            """
            "name": "hkdf-sha256", "salt": "\(KdfParameters.text(salt))"
            """
        }
    }

    /// A JSON string. Only quotes, backslashes and control characters are escaped.
    private static func quoted(_ string: String) -> String {
        var result = "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"", "\\": result += "\\\(scalar)"
            case "\u{0}"..<"\u{20}", "\u{7F}"..<"\u{A0}": result += "\\u00\(Hexadecimal.encode([UInt8(scalar.value)]))"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}
