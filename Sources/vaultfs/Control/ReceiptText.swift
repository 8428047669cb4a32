internal import Control

/// The receipt of a lock (ControlSocket, Receipt): what a command needs of it, and how people read it. Fields that are
/// not there, of another version's daemon, are left out.
struct ReceiptText {
    private let fields: [String: JSONValue]

    init(_ receipt: JSONValue) {
        if case .object(let fields) = receipt { self.fields = fields } else { fields = [:] }
    }

    /// What could not be purged; a receipt that does not say that nothing was left is none.
    var unpurged: [String] {
        let names = list("unpurged")
        return names.isEmpty && fields["complete"] != .bool(true) ? ["the receipt does not say what"] : names
    }

    /// Labels and what to say for them.
    var lines: [(label: String, text: String)] {
        [
            ("locked by", list("reasons").joined(separator: ", ")), ("on lock", text("policy") ?? ""),
            ("purged", purged.joined(separator: ", ")), ("keys wiped", list("keysForgotten").joined(separator: ", ")),
            ("took", steps.joined(separator: ", ")), ("in all", times.joined(separator: ", ")),
        ].filter { !$0.1.isEmpty }
    }

    /// In one line: when all was purged, or what was not.
    var summary: String {
        unpurged.isEmpty ? times.joined(separator: ", ") : "not purged: \(unpurged.joined(separator: "; "))"
    }

    private var purged: [String] {
        [
            text("inodes").map { "\($0) inodes" }, text("names").map { "names (\($0))" },
            text("cacheBytes").map { "\($0) bytes of cached blocks" },
            text("writtenBackBytes").map { "\($0) bytes written back first" },
            text("filesSealed").map { "\($0) files sealed" },
        ].compactMap { $0 }
    }

    /// `inodes 0.2 ms`, in their order.
    private var steps: [String] {
        guard case .array(let steps)? = fields["steps"] else { return [] }
        return steps.compactMap { step in
            guard case .object(let step) = step, let name = step["name"].flatMap(JSONText.line),
                let time = step["milliseconds"].flatMap(JSONText.line)
            else { return nil }
            return "\(name) \(time) ms"
        }
    }

    private var times: [String] {
        [
            text("purgeMilliseconds").map { "refused and purged after \($0) ms" },
            text("totalMilliseconds").map { "done after \($0) ms" },
        ].compactMap { $0 }
    }

    private func text(_ name: String) -> String? {
        fields[name].flatMap(JSONText.line).flatMap { $0.isEmpty ? nil : $0 }
    }

    private func list(_ name: String) -> [String] {
        guard case .array(let values)? = fields[name] else { return [] }
        return values.compactMap(JSONText.line)
    }
}
