/** The language of those who are not signed in. */

import { SelectField } from "../common/ui/field";
import { isLanguage, language, languages, switchLanguage } from "../common/words";
import { t } from "../text";

/** A choice of the language, which this browser remembers until an account says another. */
export function LanguageSwitch() {
  return (
    <SelectField
      label={t("account.language")}
      value={language.value}
      options={Object.entries(languages)}
      onChange={(chosen) => {
        if (isLanguage(chosen)) void switchLanguage(chosen);
      }}
    />
  );
}
