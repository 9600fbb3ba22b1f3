// The partner API as an oRPC contract: what a partner's TypeScript program would import. Shapes are checked by the
// tests themselves, so the contract needs no schema library.
import { oc } from '@orpc/contract'

const post = (path) => oc.route({ method: 'POST', path })

export const contract = {
  albums: {
    create: post('/albums/create'),
    list: post('/albums/list'),
    get: post('/albums/get'),
    update: post('/albums/update'),
    delete: post('/albums/delete'),
    reprocess: post('/albums/reprocess'),
    progress: post('/albums/progress'),
    startlist: {
      import: post('/albums/startlist/import'),
      check: post('/albums/startlist/check'),
      get: post('/albums/startlist/get'),
      entries: post('/albums/startlist/entries'),
      delete: post('/albums/startlist/delete'),
    },
  },
  photos: {
    photo: {
      signed: post('/photos/photo/signed'),
      success: post('/photos/photo/success'),
      get: post('/photos/photo/get'),
      list: post('/photos/photo/list'),
      delete: post('/photos/photo/delete'),
      retry: post('/photos/photo/retry'),
    },
    search: {
      faceSigned: post('/photos/search/face/signed'),
      faceList: post('/photos/search/face/list'),
      textList: post('/photos/search/text/list'),
    },
  },
  events: {
    list: post('/events/list'),
  },
  credits: {
    get: post('/credits/get'),
    mockSet: post('/credits/mock/set'),
  },
  usage: {
    get: post('/usage/get'),
  },
  // Not part of the API: an unknown path must still come back as an error that the client understands.
  nothing: post('/no/such/path'),
}
