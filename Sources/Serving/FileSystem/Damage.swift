internal import LinuxSystem

/// The path of an object below the root of the mount.
package struct ObjectPath: Sendable, Hashable {
    /// The names in the store, joined by `/`. Empty for the root.
    package let stored: [UInt8]
    /// The names that programs see. Nil if one is not known or the vault is locked.
    package var plaintext: [UInt8]?

    package init(stored: [UInt8], plaintext: [UInt8]?) { (self.stored, self.plaintext) = (stored, plaintext) }

    /// For people.
    package var shown: String { plaintext.map(Self.shown) ?? "encrypted path \(Self.shown(stored))" }

    private static func shown(_ path: [UInt8]) -> String {
        path.isEmpty ? "." : String(decoding: path, as: UTF8.self).withoutControlCharacters
    }
}

/// Damage that a request has met.
package struct Damage: Sendable, Equatable {
    /// Nil for an object that has no name any more.
    package var path: ObjectPath?
    /// The part of the object, such as its chunk, and what is wrong with it. It holds no name.
    package let reason: String

    package init(_ reason: String, at path: ObjectPath?) { (self.path, self.reason) = (path, reason) }

    /// One line for people: `damaged: Photos/a.jpg: chunk 126: its data is damaged`.
    package var message: String { "damaged: \(path?.shown ?? "an object without a name"): \(reason)" }
}
