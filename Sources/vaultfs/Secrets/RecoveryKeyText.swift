/// How a new recovery key is shown, once.
enum RecoveryKeyText {
    static func shown(_ key: String) -> String {
        """
        Recovery key, for when the passphrase is lost:

          \(key)

        Whoever has it can open the vault. Write it down and keep it elsewhere; it is not shown again.
        """
    }
}
