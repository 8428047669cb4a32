internal import VaultControl

/// The receipt of a lock (ControlSocket, Receipt): what a command needs of it, and how people read it.
struct LockReceipt {
    private let fields: [String: JSONValue]

    init(_ value: JSONValue) {
        if case .object(let fields) = value { self.fields = fields } else { fields = [:] }
    }

    /// What could not be purged; a receipt that does not say is none.
    var unpurged: [String] {
        var names: [String] = []
        if case .array(let values)? = fields["unpurged"] { names = values.compactMap(JSONText.line) }
        if names.isEmpty, fields["complete"] != .bool(true) { names = ["the receipt does not say what"] }
        return names
    }

    /// A few lines on stdout.
    func print() {
        for (name, label) in [("trigger", "locked by"), ("policy", "on lock"), ("purged", "purged")] {
            if let text = fields[name].flatMap(JSONText.line) { Console.printField("  " + label, text) }
        }
        if !steps.isEmpty { Console.printField("  took", steps.joined(separator: ", ")) }
        if let total = fields["milliseconds"].flatMap(JSONText.line) {
            Console.printField("  all refused and purged in", total + " ms")
        }
    }

    /// `drain 0.2 ms`, in their order.
    private var steps: [String] {
        guard case .array(let steps)? = fields["steps"] else { return [] }
        return steps.compactMap { step in
            guard case .object(let step) = step, let name = step["step"].flatMap(JSONText.line),
                let time = step["milliseconds"].flatMap(JSONText.line)
            else { return nil }
            return "\(name) \(time) ms"
        }
    }
}
