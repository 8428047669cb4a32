internal import LinuxSystem
internal import VaultFormat

/// A slot as `info` and `slot` show it; the names of the fields are the interface of `--json`.
struct SlotReport: Encodable {
    let id: Int
    let kind: String
    let label: String
    let created: String
    let expires: String?
    let keyDerivation: String
    let window: WindowReport?

    init(_ slot: KeySlot) {
        id = slot.id
        kind = slot.kind.rawValue
        label = slot.label
        created = slot.created
        expires = slot.expires
        keyDerivation = Self.text(slot.kdf)
        window = slot.window.map { WindowReport($0, at: UtcTime.secondsSinceEpoch()) }
    }

    /// `passphrase 'at home', made 2026-11-20T12:00:00Z, scrypt N=2^17 r=8 p=1`
    var text: String {
        let label = label.isEmpty ? "" : " '\(label.escapedForTerminal)'"
        let expires = expires.map { ", expires \($0)" } ?? ""
        let window = window.map { ", " + $0.text } ?? ""
        return "\(kind)\(label), made \(created)\(expires)\(window), \(keyDerivation)"
    }

    static func text(_ kdf: KdfParameters) -> String {
        switch kdf {
        case .scrypt(let logN, let r, let p, _): "scrypt N=2^\(logN) r=\(r) p=\(p)"
        case .hkdfSha256: "hkdf-sha256"
        }
    }

    static func text(_ cost: ScryptCost) -> String {
        "scrypt N=2^\(cost.logN) r=\(cost.r) p=\(cost.p)"
    }
}
