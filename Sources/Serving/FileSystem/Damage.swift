internal import LinuxSystem

/// The path of an object below the root of the mount.
package struct ObjectPath: Sendable, Hashable {
    /// The names in the store, joined by `/`. Empty for the root.
    package let stored: [UInt8]
    /// The names seen by programs. Nil if one is unknown or the vault is locked.
    package var plaintext: [UInt8]?

    package init(stored: [UInt8], plaintext: [UInt8]?) { (self.stored, self.plaintext) = (stored, plaintext) }

    /// The path for people.
    package var shown: String { plaintext.map(Self.shown) ?? "encrypted path \(Self.shown(stored))" }

    private static func shown(_ path: [UInt8]) -> String {
        path.isEmpty ? "." : String(decoding: path, as: UTF8.self).withoutControlCharacters
    }
}

/// Damage found by a request or in the background.
package struct Damage: Sendable, Equatable {
    /// Nil for an object without a name.
    package var path: ObjectPath?
    /// The damaged part of the object, such as its chunk, and the kind of damage. It contains no name.
    package let reason: String

    package init(_ reason: String, at path: ObjectPath?) { (self.path, self.reason) = (path, reason) }

    /// One line for people: `damaged: Photos/a.jpg: chunk 126: its data is damaged`.
    package var message: String { "damaged: \(path?.shown ?? "an object without a name"): \(reason)" }
}
