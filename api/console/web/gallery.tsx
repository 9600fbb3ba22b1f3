/** The page on which runners find their photos. */

import "./common/tokens.css";
import "./common/base.css";
import "./common/ui/ui.css";
import "./gallery/gallery.css";

import { render } from "preact";

import { startWords } from "./common/words";
import { GalleryPage } from "./gallery/page";
import { loaders } from "./gallery/text";

void startWords(loaders).then(() => render(<GalleryPage />, document.getElementById("app")!));
