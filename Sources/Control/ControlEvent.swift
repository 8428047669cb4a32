/// Something that happened to a mount: one JSON object on a line, `{"event":"did-lock","time":…,"mountpoint":…}`, whose
/// other fields tell more.
package struct ControlEvent: Codable, Equatable, Sendable {
    /// Which. Others may be added: a client passes over those it does not know.
    package struct Name: RawRepresentable, Hashable, Sendable {
        package let rawValue: String

        package init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// No event but the state at the time of asking; the first line of every stream.
        package static let state = Name(rawValue: "state")
        package static let willLock = Name(rawValue: "will-lock")
        package static let didLock = Name(rawValue: "did-lock")
        package static let willUnlock = Name(rawValue: "will-unlock")
        package static let didUnlock = Name(rawValue: "did-unlock")
        package static let denied = Name(rawValue: "denied")
        package static let integrityError = Name(rawValue: "integrity-error")
    }

    package let name: Name
    /// `YYYY-MM-DDThh:mm:ssZ`
    package let time: String
    package let mountpoint: String
    /// The other fields, beside `event`, `time` and `mountpoint`, which they cannot replace.
    package let details: [String: JSONValue]

    package init(_ name: Name, time: String, mountpoint: String, details: [String: JSONValue] = [:]) {
        self.name = name
        self.time = time
        self.mountpoint = mountpoint
        self.details = details.filter { !Self.ownFields.contains($0.key) }
    }

    /// The answer to `events`.
    package static func state(
        _ state: MountStatus.State, time: String, mountpoint: String, details: [String: JSONValue] = [:]
    ) -> ControlEvent {
        ControlEvent(
            .state, time: time, mountpoint: mountpoint,
            details: details.merging(["state": .string(state.rawValue)]) { $1 })
    }

    /// The line it is sent as, without its LF.
    package var line: [UInt8] { ControlMessage.line(of: self).dropLast() }

    private static let ownFields: Set<String> = ["event", "time", "mountpoint"]

    package init(from decoder: any Decoder) throws {
        let fields = try decoder.singleValueContainer().decode([String: JSONValue].self)
        guard case .string(let name)? = fields["event"], case .string(let time)? = fields["time"],
            case .string(let mountpoint)? = fields["mountpoint"]
        else {
            throw DecodingError.dataCorrupted(
                .init(codingPath: decoder.codingPath, debugDescription: "an event needs event, time and mountpoint"))
        }
        self.init(Name(rawValue: name), time: time, mountpoint: mountpoint, details: fields)
    }

    package func encode(to encoder: any Encoder) throws {
        var fields = details
        fields["event"] = .string(name.rawValue)
        fields["time"] = .string(time)
        fields["mountpoint"] = .string(mountpoint)
        var container = encoder.singleValueContainer()
        try container.encode(fields)
    }
}
