/** The console of organizers: where it begins, and which page belongs to which address. */

import "./common/tokens.css";
import "./common/base.css";
import "./common/ui/ui.css";
import "./shell.css";

import { render } from "preact";

import { isSignedOut, mode } from "./calls";
import { match, place, startRouter } from "./common/router";
import { ErrorState, Loading } from "./common/ui/states";
import { startWords } from "./common/words";
import { AccountPage } from "./pages/account";
import { AccountsPage } from "./pages/accounts";
import { ActivityPage } from "./pages/activity";
import { AlbumSection } from "./pages/album";
import { type Section, sections } from "./pages/album-frame";
import { AlbumsPage } from "./pages/albums";
import { KeysPage } from "./pages/keys";
import { OperatorPage } from "./pages/operator";
import { SignInPage } from "./pages/sign-in";
import { UsagePage } from "./pages/usage";
import { WebhookPage } from "./pages/webhook";
import { WebhooksPage } from "./pages/webhooks";
import { WelcomePage } from "./pages/welcome";
import { loadSession, may, session, sessionFailure } from "./session";
import { NotFound, Shell } from "./shell";
import { loaders } from "./text";

function App() {
  const { path } = place.value;
  const welcome = match("/welcome/:token", path);
  if (welcome) return <WelcomePage token={welcome["token"] ?? ""} />;
  if (sessionFailure.value) {
    return (
      <main class="alone">
        <ErrorState failure={sessionFailure.value} onRetry={() => void loadSession()} />
      </main>
    );
  }
  if (session.value === undefined) {
    return (
      <main class="alone">
        <Loading />
      </main>
    );
  }
  if (session.value === null) return <SignInPage />;
  // A page belongs to one mode, so another mode restarts it.
  return (
    <>
      <Shell key={mode.value}>{findPage(path)}</Shell>
      {isSignedOut.value && <SignInPage again />}
    </>
  );
}

function findPage(path: string) {
  const album = match("/albums/:album", path) ?? match("/albums/:album/:section", path);
  if (album) {
    const section = (album["section"] ?? "overview") as Section;
    const isThere = sections.includes(section) && (section !== "overview" || !album["section"]);
    return isThere ? <AlbumSection albumId={album["album"] ?? ""} section={section} /> : <NotFound />;
  }
  const photo = match("/albums/:album/photos/:photo", path);
  if (photo) return <AlbumSection albumId={photo["album"] ?? ""} section="photos" photoId={photo["photo"] ?? ""} />;
  const webhook = match("/webhooks/:webhook", path);
  if (webhook) return <WebhookPage webhookId={webhook["webhook"] ?? ""} />;
  return findPlainPage(path);
}

function findPlainPage(path: string) {
  switch (path) {
    case "/":
    case "/albums":
      return <AlbumsPage />;
    case "/webhooks":
      return <WebhooksPage />;
    case "/usage":
      return <UsagePage />;
    case "/account":
      return <AccountPage />;
    case "/activity":
      return <ActivityPage />;
    case "/keys":
      return may.own.value ? <KeysPage /> : <NotFound />;
    case "/accounts":
      return may.own.value ? <AccountsPage /> : <NotFound />;
    case "/operator":
      return may.operate.value ? <OperatorPage /> : <NotFound />;
    default:
      return <NotFound />;
  }
}

async function start(): Promise<void> {
  startRouter("/console");
  await Promise.all([startWords(loaders), match("/welcome/:token", place.value.path) ? null : loadSession()]);
  const app = document.getElementById("app");
  if (app) render(<App />, app);
}

void start();
